"""docs/gitops.md: no object is both declared in Git and made by a run, so a sync undoes no promotion."""

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.fit.site_objects import site_objects
from slipway.tasks.contracts.site.site import Site
from tests.fakes.documents.eks_site import FILE, eks
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_all_yaml
from tests.unit.manifests.objects import MANIFESTS

GOLDEN = REPOSITORY / "tests" / "golden"
BY_ARGO_CD = "app.kubernetes.io/instance"
"""The label by which Argo CD tracks its objects unless it is told to use an annotation."""


def documents(files):
    return [item for file in files for item in load_all_yaml(file.read_text()) if item]


def declared():
    files = [
        file for file in MANIFESTS.rglob("*.yaml") if "chart" not in file.parts
    ]  # of templates, compared elsewhere
    manifests = [item for item in documents(files) if "kind" in item and "name" in item.get("metadata", {})]
    return [*manifests, *site_objects(read_contract(Site, eks(), FILE.name), FILE.read_text())]


def made():
    serving = documents((GOLDEN / "serving").rglob("*.yaml"))
    assert {"Deployment", "Service"} <= {item["kind"] for item in serving}
    return serving


def identities(objects):
    """Kind and name: an overlay may change namespaces."""
    return {(item["kind"], item["metadata"]["name"]) for item in objects}


def test_no_object_is_both_declared_in_git_and_made_by_a_run():
    assert identities(declared()) & identities(made()) == set()


def test_what_runs_make_is_marked_as_slipways_and_as_nobody_elses():
    for item in made():
        labels = item["metadata"]["labels"]
        assert (labels["app.kubernetes.io/managed-by"], BY_ARGO_CD in labels) == ("slipway", False)
