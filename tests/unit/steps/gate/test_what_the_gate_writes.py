"""The gate's evidence: the verdict, the costs, and a report that says why and shows what was before."""

from datetime import UTC, datetime

import pytest

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.measurement import AnswerRow
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.steps import gate
from tests.fakes.documents.refused_release import SUMMARIES
from tests.fakes.releases import SPEC, release
from tests.fakes.workspace import workspace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EXPECT = [{"metric": "smoke_accuracy", "at_least": 1}, {"metric": "cost_per_million_tokens", "at_most": 1e6}]
OLDER = ("demo-000000000001", "demo-000000000002")


@pytest.fixture
def surroundings(tmp_path):
    """A workspace whose store has two earlier releases, and what a run recorded of its candidate."""
    return workspace(tmp_path, prices={"cpu_hour": 3.6})


def rows(documents):
    return canonical_json([each.model_dump(mode="json") for each in documents])


@pytest.fixture
def judged(surroundings):
    """The outcome of the gate, and its files by name."""
    candidate = release(gate={**SPEC["gate"], "benchmark": {"concurrency": [4]}, "expect": EXPECT})
    store, layout, name = surroundings.store, surroundings.layout, candidate.spec.name
    own = [each for each in SUMMARIES if each.target == "candidate"]
    channel = Channel(name=name)
    for number, older in enumerate(OLDER):
        channel = channel.promoted(older, layout.release(name, older), at=NOW, run=f"run-{number}", keep=2)
        store.put_bytes(f"{layout.evidence(name, older, f'run-{number}')}/summary.json", rows(own))
    store.put_bytes(layout.channel(name), canonical_json(channel.model_dump(mode="json")))
    folder = surroundings.evidence(candidate)
    answer = AnswerRow(suite="smoke", prompt="Two?", expected="2", answer="3", ok=False)
    folder.write_bytes("answers.json", rows([answer]))
    folder.write_bytes("summary.json", rows(own))
    built = StepResult(step="build", run=candidate.plan.run, outcome="done", summary="", started_at=NOW, seconds=1000.0)
    store.put_bytes(layout.result(name, candidate.id, "build"), canonical_json(built.model_dump(mode="json")))
    outcome = gate.run(candidate, surroundings)
    return outcome, folder


def test_a_lost_release_and_a_damaged_channel_cost_the_report_and_not_the_verdict(surroundings):
    candidate = release(live="demo-000000000000", gate={**SPEC["gate"], "expect": EXPECT})
    surroundings.store.put_bytes(surroundings.layout.channel(candidate.spec.name), b"{")

    outcome = gate.run(candidate, surroundings)

    assert outcome.data["verdict"] == "inconclusive"
    assert surroundings.evidence(candidate).read("report.html")


def test_the_report_says_why_and_shows_earlier_releases(judged):
    _, folder = judged
    page = folder.read("report.html").decode()

    assert "refused: 1 of 1 smoke answers wrong: smoke accuracy 0, at least 1 needed" in page
    assert all(older in page for older in OLDER)


def test_the_ledger_has_the_runs_steps_and_what_tokens_cost(judged):
    _, folder = judged
    costs = Ledger.model_validate_json(folder.read("cost.json"))

    assert [each.step for each in costs.steps] == ["build"]
    assert costs.levels[0].level == "concurrency 4"
    assert costs.levels[0].cost_per_million_tokens > 0


def test_without_requests_a_limit_of_costs_is_not_met(judged):
    outcome, _ = judged

    assert any("cost_per_million_tokens" in line for line in outcome.data["refused"])
