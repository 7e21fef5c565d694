"""Requests and links are signed in the region of the site's bucket, which S3 checks."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.sdk.exceptions import AirflowFailException

from slipway.airflow.notify.links import document_url
from slipway.airflow.page.documents import client_of
from slipway.airflow.site import current_site
from slipway.airflow.step_documents import s3_client, s3_client_of
from tests.dags.places import CREDENTIALS, SITE
from tests.dags.step_runs import LAYOUT

REGION = "eu-central-1"


def forget():
    for cached in (current_site, s3_client_of):
        cached.cache_clear()


@pytest.fixture
def connect(tmp_path, monkeypatch):
    """Give Airflow a connection with this `extra`, and a site in REGION."""
    site = tmp_path / "site.yaml"
    site.write_text(SITE.read_text().replace("{bucket: slipway,", f"{{bucket: slipway, region: {REGION},", 1))

    def connected(**extra):
        connection = {"conn_type": "aws", **CREDENTIALS, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))
        monkeypatch.setenv("SLIPWAY_SITE", str(site))
        forget()

    yield connected
    forget()


@pytest.mark.parametrize("extra", [{}, {"region_name": REGION}])
def test_a_link_is_signed_in_the_region_of_the_site(connect, extra):
    connect(**extra)

    link = urlsplit(document_url(f"{LAYOUT.root}/releases/demo/demo-000000000000/evidence/run-1/report.html"))

    (credential,) = parse_qs(link.query)["X-Amz-Credential"]
    assert credential.split("/")[2] == REGION
    assert link.hostname == f"slipway.s3.{REGION}.amazonaws.com"
    assert client_of("aws_default").meta.region_name == REGION


def test_a_store_that_the_connection_names_is_addressed_by_path(connect):
    connect(endpoint_url="http://s3-gateway.example:9000")

    link = document_url(f"{LAYOUT.root}/releases/demo/demo-000000000000/evidence/run-1/report.html")

    assert link.startswith("http://s3-gateway.example:9000/slipway/team-a/releases/")


def test_a_connection_to_another_region_is_refused(connect):
    connect(region_name="us-west-2")

    with pytest.raises(AirflowFailException, match=f"region_name us-west-2, expected {REGION}"):
        s3_client("aws_default")
