"""`slipway gc` runs the DAG `retention` and prints its report."""

import pytest

from slipway.cli.json_documents import GcDocument
from tests.fakes.servers.airflow_server import Frame, Script
from tests.unit.cli.runs import failed, result

DELETED = "deleted: artifact s3://b/artifacts/build/a/: 3 objects, 1.0 kB; no kept release needs build a"


def script(summary):
    data = {"first": [DELETED], "report": {"parts": ["s3://b/retention/one/deletions-00001.jsonl"]}}
    reported = result("retention", summary, **data)
    return Script([Frame("success", {"retention": "success"})], {"retention": reported})


@pytest.mark.parametrize(("options", "dry_run"), [([], False), (["--dry-run"], True)])
def test_it_prints_each_deletion_and_where_all_of_them_are(airflow, slipway, options, dry_run):
    airflow.dags["retention"] = script("deleted 1 artifact, 1.0 kB; 2 releases keep their artifacts")

    code, printed = slipway("gc", "--run-id", "one", *options)

    assert code == 0
    assert DELETED in printed
    assert "s3://b/retention/one/deletions-00001.jsonl" in printed
    assert "2 releases keep their artifacts" in printed
    assert airflow.runs["retention", "one"].conf == {"dry_run": dry_run}


def test_what_is_deleted_is_one_document(airflow, slipway):
    airflow.dags["retention"] = script("deleted 1 artifact, 1.0 kB")

    code, printed = slipway("gc", "--json")

    document = GcDocument.model_validate_json(printed.out)
    assert (code, document.exit_code, document.outcome) == (0, 0, "deleted 1 artifact, 1.0 kB")
    assert (document.deletions, document.lists) == ([DELETED], ["s3://b/retention/one/deletions-00001.jsonl"])


def test_a_site_without_retention_is_a_wrong_input(airflow, slipway):
    logs = {"retention": failed("plan", "AirflowFailException", "site local has no retention").logs["plan"]}
    airflow.dags["retention"] = Script([Frame("failed", {"retention": "failed"})], {}, logs)

    code, printed = slipway("gc")

    assert (code, "site local has no retention" in printed) == (65, True)
