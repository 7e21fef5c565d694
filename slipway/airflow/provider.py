"""What the list of providers shows. Airflow calls it while it reads its settings, so it imports nothing of Airflow."""

from importlib.metadata import version

DISTRIBUTION = "slipway-models"


def provider_info() -> dict[str, object]:
    """The installed wheel as a provider, by airflow/provider_info.schema.json."""
    return {
        "package-name": DISTRIBUTION,
        "name": "Slipway",
        "description": "From a Hugging Face revision to a promoted Triton service on Kubernetes",
        "versions": [version(DISTRIBUTION)],
    }
