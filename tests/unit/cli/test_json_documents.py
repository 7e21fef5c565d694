"""What `--json` prints is described by a schema, and no field of an earlier version goes away."""

import json
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from slipway.cli.airflow.api import Airflow
from slipway.cli.cluster.key import keys_document
from slipway.cli.files.documents import Printed
from slipway.cli.json_documents import ExplainDocument, KeysDocument, StatusDocument
from slipway.cli.runs.explain import explained
from slipway.cli.runs.states import every_model_state, model_state
from slipway.cli.runs.status import _of_all, _read
from slipway.tasks.contracts.api_keys import ApiKey
from slipway.tasks.contracts.errors import UnavailableError
from tests.fakes.servers.airflow_server import ScriptedRun
from tests.support.paths import REPOSITORY
from tests.unit.cli.runs import DAG, promoted
from tests.unit.cli.test_state import LAYOUT, LIVE, LOGIN, NOON, OLDER, Documents, Held, channel, gate_json

FIELDS = REPOSITORY / "tests/golden/json_documents.txt"


def fields(schema, definitions, place=""):
    """Every field of a schema, by its path."""
    if reference := schema.get("$ref"):
        schema = definitions[reference.rpartition("/")[2]]
    for key in ("anyOf", "allOf", "oneOf"):
        for part in schema.get(key, ()):
            yield from fields(part, definitions, place)
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], definitions, f"{place}[]")
    for name, part in schema.get("properties", {}).items():
        yield f"{place}.{name}"
        if f".{name}." not in f"{place}.":
            yield from fields(part, definitions, f"{place}.{name}")


def test_no_field_goes_away_and_every_new_one_is_recorded(slipway):
    current = set()
    for command in Printed:
        schema = json.loads(slipway("schema", "--of", command.value)[1])
        current |= set(fields(schema, schema.get("$defs", {}), command.value))
    recorded = set(FIELDS.read_text().splitlines())

    assert recorded - current == set(), "programs read these fields"
    assert current - recorded == set(), f"add them to {FIELDS}"


class Listed(Documents):
    """A store whose channels can be listed."""

    def list(self, folder):
        return [SimpleNamespace(uri=uri) for uri in self.documents if uri.startswith(folder)]


@pytest.fixture
def settings(airflow):
    airflow.dags |= {DAG: promoted(), "release__other": promoted()}
    airflow.runs[DAG, "one"] = ScriptedRun("one", {}, promoted(), frame=9)
    store = Listed(channel(), gate=gate_json())
    return SimpleNamespace(
        store=lambda: (store, LAYOUT),
        cluster=lambda: Held(f"{DAG}/one"),
        airflow=lambda: Airflow(airflow.address, LOGIN),
    )


def test_the_status_of_every_model_is_one_document(settings):
    document = every_model_state(settings)

    again = StatusDocument.model_validate_json(document.model_dump_json())
    assert [(model.name, model.live and model.live.release, model.has_dag) for model in again.models] == [
        ("demo", LIVE, True),
        ("other", None, True),
    ]
    assert [run.id for run in again.models[0].runs] == ["one"]
    assert [model.lease and (model.lease.run, model.lease.ended) for model in again.models] == [
        (f"{DAG}/one", True),
        None,
    ]


def test_the_models_are_listed_although_their_leases_cannot_be_read(settings):
    def absent():
        raise UnavailableError("the cluster does not answer")

    settings.cluster = absent
    document = every_model_state(settings)

    assert [model.name for model in document.models] == ["demo", "other"]
    assert [problem.part for problem in document.problems] == ["leases"]


def test_what_is_live_is_listed_while_airflow_is_down(settings):
    settings.airflow = lambda: Airflow("http://127.0.0.1:9", LOGIN)
    document = every_model_state(settings)

    assert [(model.name, model.live.release, model.has_dag) for model in document.models] == [("demo", LIVE, None)]
    assert {problem.part for problem in document.problems} == {"leases", "runs"}


def test_a_damaged_channel_is_a_problem_of_its_model_alone(settings, airflow):
    store, layout = settings.store()
    store.documents[layout.channel("other")] = b"{"
    lines, code = _read(_of_all(settings)[0])
    console = Console(width=200)
    with console.capture() as shown:
        console.print(*lines, sep="\n")

    assert code == 65
    assert [problem.part for problem in every_model_state(settings).problems] == ["channel of other"]
    assert re.search(rf"demo +{LIVE}.*\n *other +unknown", shown.get())
    assert "channel of other unknown: " in shown.get()


def test_the_status_of_one_model_has_its_address_and_what_a_rollback_returns_to(settings):
    (model,) = model_state(settings, "demo").models

    assert (model.previous, model.service.pods, model.candidate) == ([OLDER], ["demo-pod"], None)
    assert model.lease.ended


def test_a_model_without_a_dag_is_said_to_have_none(slipway):
    code, printed = slipway("status", "absent", "--json")

    (model,) = StatusDocument.model_validate_json(printed.out).models
    assert (code, model.has_dag) == (65, False)


def test_one_document_is_not_watched(slipway):
    code, printed = slipway("status", "demo", "--json", "--watch")

    assert (code, "Leave one of the two out" in printed) == (65, True)


def test_a_part_of_the_status_that_cannot_be_read_is_a_problem_with_its_exit_code(slipway, airflow):
    airflow.dags[DAG] = promoted()

    code, printed = slipway("status", "demo", "--json")

    document = StatusDocument.model_validate_json(printed.out)
    assert code == 65
    assert [problem.part for problem in document.problems] == ["channel", "service", "candidate", "lease"]
    assert all("SLIPWAY_SITE" in problem.remedy for problem in document.problems)


def test_an_explanation_holds_the_gate_that_the_live_release_passed():
    document = explained(Documents(channel(), gate=gate_json()), LAYOUT, "demo")

    again = ExplainDocument.model_validate_json(document.model_dump_json())
    assert (again.release, again.commit, again.promoted_by) == (LIVE, "a" * 40, "run-2")
    assert again.gate.judgements[0].observed == 0.333


def test_keys_say_whether_they_have_expired():
    keys = [ApiKey("alice", "0" * 64, "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z")]

    document = KeysDocument.model_validate_json(keys_document(keys, NOON).model_dump_json())

    assert [(key.name, key.expired) for key in document.keys] == [("alice", True)]
