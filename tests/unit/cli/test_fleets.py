"""Fleets in the command: released by one name, explained as a matrix, and rolled back model by model."""

import io
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml
from rich.console import Console

from slipway.cli.json_documents import FleetDocument, FleetPlanDocument, ReleaseDocument
from slipway.cli.runs import fleet_matrix
from slipway.cli.settings import Settings
from slipway.tasks.contracts.fit.ledger import Ledger, LevelCost
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from tests.fakes.releases import SPEC, release
from tests.fakes.servers.airflow_server import Frame, Script, ScriptedRun
from tests.support.paths import REPOSITORY
from tests.unit.cli.runs import failed, nothing_to_do, planned, promoted, refused
from tests.unit.cli.test_state import Documents as Stored
from tests.unit.cli.test_state import Lost, channel

LAYOUT = Layout("s3://models")
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MEMBERS = ("demo-cpu-1", "demo-cpu-2")
RUN = "one"


def fleet(airflow, first, second):
    """A fleet whose members' runs have ended so; its own run says of each whether that was good."""
    ends = dict(zip(MEMBERS, (first, second), strict=True))
    for name, script in ends.items():
        airflow.dags[f"release__{name}"] = script
        ended = ScriptedRun(f"fleet__{RUN}", {}, Script(script.frames[-1:], script.results, script.logs))
        airflow.runs[f"release__{name}", f"fleet__{RUN}"] = ended
    states = {name: script.frames[-1].state for name, script in ends.items()}
    state = "success" if set(states.values()) == {"success"} else "failed"
    frames = [Frame("running", dict.fromkeys(MEMBERS, "running")), Frame(state, states)]
    airflow.dags["fleet__demo"] = Script(frames, description=f"slipway/demo-llama → {', '.join(MEMBERS)}")


def test_a_fleet_is_released_by_its_name_and_each_member_has_an_outcome(airflow, slipway):
    fleet(airflow, refused(), promoted())

    code, printed = slipway("release", "demo", "--force", "--run-id", RUN)

    assert code == 1
    assert airflow.runs["fleet__demo", RUN].conf == {"force": True}
    assert f"demo-cpu-1: refused: {release().id} failed its gate" in printed
    assert f"demo-cpu-2: promoted: {release().id} is live" in printed
    assert "fleet demo: 1 of 2 models serve what was requested" in printed


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ((promoted, promoted), 0),
        ((promoted, refused), 1),
        ((promoted, lambda: failed("plan", "AirflowFailException", "plan: no")), 65),
        ((refused, lambda: failed("plan", "AirflowFailException", "plan: no")), 1),
    ],
)
def test_the_exit_code_is_the_worst_that_a_member_had(airflow, slipway, ends, code):
    fleet(airflow, *(end() for end in ends))

    assert slipway("release", "demo", "--run-id", RUN)[0] == code


def test_a_member_that_was_never_released_is_named(airflow, slipway):
    fleet(airflow, promoted(), promoted())
    del airflow.runs["release__demo-cpu-2", f"fleet__{RUN}"]

    code, printed = slipway("release", "demo", "--run-id", RUN)

    assert code == 1
    assert "demo-cpu-2: not released: DAG release__demo-cpu-2 has no run fleet__one" in printed


def test_the_end_of_a_fleets_release_is_one_document(airflow, slipway):
    fleet(airflow, promoted(), refused())

    code, printed = slipway("release", "demo", "--run-id", RUN, "--json")

    document = ReleaseDocument.model_validate_json(printed.out)
    assert code == document.exit_code == 1
    assert [(step.name, step.state) for step in document.steps] == [(MEMBERS[0], "done"), (MEMBERS[1], "failed")]
    assert document.steps[1].text.startswith("refused: ")


@pytest.mark.parametrize("fault", [{"paused": True}, {"unreadable": "ValueError: no"}])
def test_a_fleet_is_not_released_while_a_member_cannot_be(airflow, slipway, fault):
    fleet(airflow, promoted(), promoted())
    airflow.dags["release__demo-cpu-2"] = replace(airflow.dags["release__demo-cpu-2"], **fault)

    code, printed = slipway("release", "demo")

    assert code == 65
    assert "DAG release__demo-cpu-2" in printed
    assert airflow.count("POST /api/v2/dags/fleet__demo") == 0


def test_a_member_with_nothing_to_do_fails_where_the_cluster_serves_nothing(airflow, slipway, monkeypatch):
    fleet(airflow, nothing_to_do(), promoted())
    monkeypatch.setattr(Settings, "cluster", lambda _: Lost(service=False))

    code, printed = slipway("release", "demo", "--run-id", RUN)

    assert code == 1
    assert (
        "the cluster has no Service demo-cpu-1. If nothing is being restarted, `slipway restore demo-cpu-1`" in printed
    )
    assert "fleet demo: 1 of 2 models serve what was requested" in printed


@pytest.mark.parametrize(
    "command",
    [
        ("rollback", "demo", "--reason", "no"),
        ("approve", "demo"),
        ("restore", "demo"),
        ("logs", "demo"),
    ],
)
def test_what_concerns_one_model_names_those_of_the_fleet(airflow, slipway, command):
    fleet(airflow, promoted(), promoted())

    code, printed = slipway(*command)

    assert code == 65
    assert "one of demo-cpu-1, demo-cpu-2" in printed


def shown(slipway):
    """The models that the status of `demo` has."""
    return [model["name"] for model in json.loads(slipway("status", "demo", "--json")[1].out)["models"]]


def test_a_model_that_became_a_fleet_is_one_for_every_command(airflow, slipway, monkeypatch):
    fleet(airflow, promoted(), promoted())
    airflow.dags["release__demo"] = replace(promoted(), spec_is_gone=True)
    airflow.runs["release__demo", "old"] = ScriptedRun("old", {}, promoted())
    monkeypatch.setattr(Settings, "store", lambda _: (Stored(channel()), LAYOUT))

    assert shown(slipway) == list(MEMBERS)
    assert "fleet demo" in slipway("explain", "demo")[1]
    assert "one of demo-cpu-1, demo-cpu-2" in slipway("logs", "demo")[1]
    assert slipway("release", "demo", "--no-wait", "--run-id", "new")[0] == 0
    assert ("fleet__demo", "new") in airflow.runs


def test_a_fleet_that_became_a_model_is_one_before_its_first_promotion(airflow, slipway, monkeypatch):
    fleet(airflow, promoted(), promoted())
    monkeypatch.setattr(Settings, "store", lambda _: (Stored(), LAYOUT))
    airflow.dags["fleet__demo"].spec_is_gone = True
    airflow.dags["release__demo"] = promoted()

    assert shown(slipway) == ["demo"]


def test_a_name_is_a_models_and_that_is_said_while_airflow_does_not_answer(airflow, slipway, monkeypatch):
    fleet(airflow, promoted(), promoted())
    airflow.failures[:] = [503]
    monkeypatch.setattr(Settings, "store", lambda _: (Stored(channel()), LAYOUT))

    code, printed = slipway("explain", "demo")

    assert code == 0
    assert "demo is taken for a model, because Airflow does not say whether it is a fleet" in printed
    assert f"{release().id} has been live since" in printed.out


def test_a_fleets_release_is_cancelled_with_those_of_its_models(airflow, slipway):
    fleet(airflow, promoted(), promoted())
    slipway("release", "demo", "--no-wait", "--run-id", RUN)
    going_on = airflow.runs["release__demo-cpu-2", f"fleet__{RUN}"]
    going_on.script = Script([Frame("running")])
    airflow.runs["release__demo-cpu-2", "own"] = ScriptedRun("own", {}, Script([Frame("running")]))
    airflow.asked.clear()

    code, printed = slipway("cancel", "demo")

    assert code == 0
    asked = [(line.split("/")[0], line.split("/")[4]) for line in airflow.asked if "dagRuns/" in line]
    assert asked == [  # none is looked up while the fleet may start another
        ("PATCH ", "fleet__demo"),
        ("GET ", "release__demo-cpu-1"),
        ("GET ", "release__demo-cpu-2"),
        ("PATCH ", "release__demo-cpu-2"),
    ]
    assert (airflow.runs["fleet__demo", RUN].now.state, going_on.now.state) == ("failed", "failed")
    assert airflow.runs["release__demo-cpu-2", "own"].now.state == "running"
    assert f"cancelled: run {RUN}; it starts no more releases" in printed
    assert f"cancelled: run fleet__{RUN}; its candidate is removed" in printed


def test_a_release_of_a_fleet_that_was_stopped_halfway_is_cancelled_again(airflow, slipway):
    fleet(airflow, promoted(), promoted())
    airflow.runs["fleet__demo", RUN] = ScriptedRun(RUN, {}, Script([Frame("failed")]))
    going_on = airflow.runs["release__demo-cpu-2", f"fleet__{RUN}"]
    going_on.script = Script([Frame("running")])

    assert slipway("cancel", "demo")[0] == 0
    assert going_on.now.state == "failed"
    code, printed = slipway("cancel", "demo")
    assert (code, f"no run of demo goes on: found {RUN} is failed" in printed) == (65, True)


def test_a_name_that_is_neither_a_model_nor_a_fleet_is_no_fleet(airflow, slipway):
    code, printed = slipway("release", "nothing")

    assert code == 65
    assert "Airflow has no DAG release__nothing" in printed


def test_a_fleet_is_planned_member_by_member(airflow, slipway):
    fleet(airflow, promoted(), promoted())
    for name in MEMBERS:
        airflow.dags[f"release__{name}"] = Script([Frame("running", {"plan": "success"})], {"plan": planned()})

    code, printed = slipway("plan", "demo")
    _, document = slipway("plan", "demo", "--json")

    assert code == 0
    assert printed.count("runs build, assemble, publish; then rolls out") == 2
    assert len(json.loads(document.out)["members"]) == 2


def test_a_fleet_is_planned_to_its_end_although_a_member_has_no_plan(airflow, slipway):
    fleet(airflow, promoted(), promoted())
    airflow.dags["release__demo-cpu-1"] = failed("plan", "AirflowFailException", "plan: no such commit")
    airflow.dags["release__demo-cpu-2"] = Script([Frame("running", {"plan": "success"})], {"plan": planned()})

    code, printed = slipway("plan", "demo")
    code_of_document, document = slipway("plan", "demo", "--json")

    assert code == code_of_document == 65
    assert "runs build, assemble, publish; then rolls out" in printed
    assert "demo-cpu-1: failed: plan: no such commit" in printed
    document = FleetPlanDocument.model_validate_json(document.out)
    assert len(document.members) == 1
    assert [(each.part, each.exit_code) for each in document.problems] == [("demo-cpu-1", 65)]


def test_a_fleet_is_explained_although_a_member_cannot_be_read(airflow, slipway, monkeypatch):
    fleet(airflow, promoted(), promoted())
    store = Stored()
    store.documents[LAYOUT.channel("demo-cpu-1")] = b"{"
    monkeypatch.setattr(Settings, "store", lambda _: (store, LAYOUT))

    code, printed = slipway("explain", "demo")
    code_of_document, document = slipway("explain", "demo", "--json")

    assert code == code_of_document == 65
    assert "nothing is live" in printed.out
    assert f"demo-cpu-1: {LAYOUT.channel('demo-cpu-1')} is not valid JSON" in printed
    document = FleetDocument.model_validate_json(document.out)
    assert [each.name for each in document.members] == ["demo-cpu-2"]
    assert [(each.part, each.exit_code) for each in document.problems] == [("demo-cpu-1", 65)]


def test_each_member_is_verified_although_another_cannot_be(airflow, slipway, monkeypatch):
    fleet(airflow, promoted(), promoted())
    monkeypatch.setenv("SLIPWAY_SITE", str(REPOSITORY / "sites/kind.yaml"))

    code, printed = slipway("explain", "demo", "--verify")

    assert code == 65
    assert [line.split(":")[0] for line in printed.splitlines() if "names no public keys" in line] == list(MEMBERS)


def test_a_spec_file_of_a_fleet_is_valid_and_says_which_models_it_makes(slipway, tmp_path):
    file = tmp_path / "demo.yaml"
    file.write_text(yaml.safe_dump({**SPEC, "serving": {"shape": ["cpu-1", "cpu-2"]}}))

    code, printed = slipway("validate", str(file))

    assert code == 0
    assert printed.strip() == f"{file}: fleet demo of demo-cpu-1, demo-cpu-2 is valid"


class Documents(dict):
    """What the matrix reads of an object store."""

    def read_with_etag(self, uri):
        return (self[uri].model_dump_json().encode(), "etag") if uri in self else None


def matrix(documents, *names):
    members = [fleet_matrix.member(documents, LAYOUT, name) for name in names]
    console = Console(width=180, file=io.StringIO())
    for part in fleet_matrix.matrix("demo", members):
        console.print(part)
    return members, console.file.getvalue()


def released(name):
    """The newest release of a model, and the costs of the run that judged it."""
    made = release(name=name, serving={"shape": name.removeprefix("demo-")})
    levels = [
        LevelCost(level=f"concurrency {clients}", tokens_per_s=tokens, cost_per_million_tokens=300 / tokens)
        for clients, tokens in ((1, 50), (4, 150), (8, 120))
    ]
    costs = Ledger(currency="EUR", steps=(), cost_per_hour=1.0, levels=tuple(levels))
    return made, {
        LAYOUT.release(name, made.id): made,
        f"{LAYOUT.evidence(name, made.id, 'run-1')}/cost.json": costs,
    }


def test_the_matrix_has_what_is_live_of_each_member_and_how_it_was_judged():
    good, documents = released("demo-cpu-1")
    bad, more = released("demo-cpu-2")
    live = Channel(name="demo-cpu-1").promoted(
        good.id, LAYOUT.release("demo-cpu-1", good.id), at=NOON, run="run-1", keep=2
    )
    gone = Channel(name="demo-cpu-2").refused(bad.id, at=NOON, run="run-1", reason="ttft_ms is 12, at most 1")
    documents = Documents(documents | more | {LAYOUT.channel("demo-cpu-1"): live, LAYOUT.channel("demo-cpu-2"): gone})

    (first, second, third), text = matrix(documents, "demo-cpu-1", "demo-cpu-2", "demo-cpu-4")

    assert (first.on, first.format, first.engine_kind, first.engine) == ("cpu-1", "int8", "openvino", "3" * 64)
    assert (first.release, first.since, first.verdict) == (good.id, NOON, "promoted")
    assert (first.tokens_per_s, first.level, first.cost_per_million_tokens) == (150, "concurrency 4", 2.0)
    assert (second.release, second.verdict, second.on, second.tokens_per_s) == (None, "refused", "cpu-2", 150)
    assert (third.release, third.verdict, third.format) == (None, None, "")
    rows = {line.split()[1]: line for line in text.splitlines() if "demo-cpu" in line and "│" in line}
    assert "2 EUR" in rows["demo-cpu-1"]
    assert "nothing is live" in rows["demo-cpu-2"]
    assert "demo-cpu-2: refused: ttft_ms is 12, at most 1" in text
    FleetDocument.model_validate_json(FleetDocument(name="demo", members=[first, second, third]).model_dump_json())


def test_a_member_whose_newest_release_was_refused_shows_what_is_still_live():
    good, documents = released("demo-cpu-1")
    live = Channel(name="demo-cpu-1").promoted(
        good.id, LAYOUT.release("demo-cpu-1", good.id), at=NOON, run="run-1", keep=2
    )
    documents = Documents(
        {
            **documents,
            LAYOUT.channel("demo-cpu-1"): live.refused("demo-cpu-1-new", at=NOON, run="run-2", reason="slow"),
        }
    )

    ((member,), _) = matrix(documents, "demo-cpu-1")

    assert (member.release, member.verdict, member.reason, member.tokens_per_s) == (good.id, "refused", "slow", 150)
