"""The site of this tier and the credentials of its object store."""

import json
from pathlib import Path

SITE = Path(__file__).with_name("site.yaml")
CREDENTIALS = {"login": "slipway", "password": "canary-of-the-store"}


def store_connection(endpoint):
    """Airflow's connection to the object store, as the environment gives it."""
    extra = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return json.dumps({"conn_type": "aws", **CREDENTIALS, "extra": extra})
