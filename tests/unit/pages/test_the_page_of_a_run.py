"""The page of one run: what became of it, and what its steps reported."""

from datetime import UTC, datetime

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.release import Failure
from slipway.tasks.pages.run import read_run
from tests.fakes.documents.page_documents import PageDocuments
from tests.fakes.documents.refused_release import CANDIDATE, RIGHT, RUN, documents, gate, results

LAYOUT = Layout("s3://bucket")
NOW = datetime(2026, 1, 31, tzinfo=UTC)


def run(stored):
    return read_run("demo", RUN, LAYOUT, PageDocuments(stored))


def test_it_says_why_the_gate_refused():
    found = run(documents(LAYOUT))

    worst = "2 of 3 smoke answers wrong: smoke accuracy 0.333, at least 1 needed"
    assert found.banner.startswith(f"{CANDIDATE.id}, refused: {worst} and ttft_ms p95")
    assert [step.step for step in found.steps] == ["plan", "gate"]
    assert found.tone == "refused"


def test_it_says_that_everything_holds():
    found = run(documents(LAYOUT, gate=gate(RIGHT)))

    assert (found.banner, found.tone) == (f"{CANDIDATE.id}, passed: all 1 expectations hold.", "promoted")


def test_a_step_that_failed_is_the_reason():
    failure = Failure.of(InputError("no such revision", found="v9", remedy="Name one that exists."))
    plan = results(NOW)["plan"].model_copy(update={"outcome": "failed", "error": failure, "data": {}})

    found = run({LAYOUT.plan("demo", RUN): plan})

    assert found.banner == f"plan failed: {failure.message}"
    assert found.tone == "refused"


def test_results_of_another_run_of_the_same_release_are_not_its_own():
    stored = documents(LAYOUT)
    uri = LAYOUT.result("demo", CANDIDATE.id, "gate")
    stored[uri] = stored[uri].model_copy(update={"run": "later"})

    assert [step.step for step in run(stored).steps] == ["plan"]


def test_a_run_that_plans_nothing_new_says_so():
    plan = results(NOW)["plan"]
    plan = plan.model_copy(update={"data": plan.data | {"action": "nothing"}, "summary": "nothing to do: demo is live"})

    assert run({LAYOUT.plan("demo", RUN): plan}).banner == "nothing to do: demo is live"
    assert run({}).banner == "Nothing is planned yet."


def test_answers_nested_deeper_than_any_are_a_problem_of_them_alone():
    stored = documents(LAYOUT)
    uri = f"{LAYOUT.evidence('demo', CANDIDATE.id, RUN)}/answers.json"

    found = run({**stored, uri: b"[" * 100_000})

    assert found.trial.answers == ()
    assert [problem.startswith("answers cannot be shown") for problem in found.trial.problems] == [True]
    assert found.trial.report
