"""A promotion in OpenLineage's terms: the revisions that it was made of, and the release that it made live.

Names follow https://openlineage.io/docs/spec/naming. Airflow's OpenLineage provider, where a site has it, asks for
them.
"""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    from slipway.tasks.contracts.stored.plan import Plan, Source


def promoted(plan: "Plan", release_uri: str, hub: str) -> "OperatorLineage":
    """The model, its adapters and its draft model as inputs; `releases/<name>` of the bucket as output.

    The version of an input is its commit, that of the output the release's id. `hub` is the address of the Hub.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - only the provider calls this

    sources = [plan.source, *plan.adapters.values(), *([plan.draft] if plan.draft else [])]
    folder = release_uri.rpartition(f"/{plan.release_id}/")[0]
    return OperatorLineage(
        inputs=[_input(each, hub) for each in sources], outputs=[_dataset(*_of_store(folder), plan.release_id)]
    )


def nothing() -> "OperatorLineage":
    """The lineage of a step that moves no model. The provider warns about None."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - as above

    return OperatorLineage()


def _input(source: "Source", hub: str) -> "Dataset":
    place = _of_store(source.repo) if source.is_folder else (hub, source.repo)
    return _dataset(*place, source.commit)


def _of_store(uri: str) -> tuple[str, str]:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")


def _dataset(namespace: str, name: str, version: str) -> "Dataset":
    from openlineage.client.event_v2 import Dataset  # noqa: PLC0415 - as above
    from openlineage.client.facet_v2 import dataset_version_dataset  # noqa: PLC0415

    facet = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=version)
    return Dataset(namespace=namespace, name=name, facets={"version": facet})
