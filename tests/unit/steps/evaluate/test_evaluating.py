"""Step evaluate over a harness that answers with made-up scores."""

import json
from contextlib import suppress

import pytest

from slipway.tasks.adapters.judge.lm_eval_harness import HarnessMeasurement, measurement, question_task
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.measured.harness import HarnessReport, Score
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.steps import evaluate
from tests.fakes.releases import SPEC, release
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import SITE, workspace
from tests.support.refused import refused

QUESTIONS = {"task": "ours", "questions": "hf://datasets/org/q@main/q.jsonl", "at_least": 0.5, "min_count": 1}
LINES = [{"prompt": "What?", "answer": "That.", "more": 1}]
ADDRESSES = {"candidate": ServiceAddress("10.0.0.2", {"http": 8000}), "live": ServiceAddress("fd00::1", {"http": 80})}


class Runner:
    """Gives every task the score of its endpoint, and keeps what was asked."""

    version = "0.4.13"

    def __init__(self):
        self.asked, self.questions = [], []

    def run(self, request, endpoint):
        self.asked.append((request, endpoint))
        self.questions.append(request.questions.read_text() if request.questions else None)
        value = 0.9 if endpoint.base.endswith(":8000/v1") else 0.8
        scores = {"exact_match,stripped": Score(value=value, stderr=0.01)}
        return HarnessMeasurement(100, scores, "1.0", "e" * 64, b'{"doc_id": 0}\n')


class Cluster:
    def candidate_address(self, name):
        return ADDRESSES["candidate"]

    def live_address(self, name):
        return ADDRESSES["live"]


@pytest.fixture
def store():
    return MemoryObjectStore()


@pytest.fixture
def evaluated(tmp_path, store):
    """Evaluate a release with these tasks; the outcome and the runner."""
    runs = []

    def run(*tasks, live=None, lines=LINES, lm_eval="0.4.13", **harness):
        images = {**SITE["images"], "harness": "harness:1"}
        found = release(live=live, gate={**SPEC["gate"], "harness": {"tasks": list(tasks), **harness}})
        file = HubFile(path="q.jsonl", digest="sha256:" + "f" * 64, size_bytes=1)
        pinned = {"ours": DatasetFile(repo="org/q", commit="c" * 40, file=file)}
        datasets = found.plan.datasets.model_copy(
            update={"harness_questions": pinned, "harness_commits": {"gsm8k": "9" * 40}}
        )
        found = found.model_copy(update={"plan": found.plan.model_copy(update={"datasets": datasets})})
        folder = tmp_path / str(len(runs))
        folder.mkdir()
        runs.append(found)
        place = workspace(folder, store=store, images=images)
        object.__setattr__(place, "cluster", Cluster)
        store.put_bytes(place.layout.dataset(file.digest), canonical_json(lines))
        runner = Runner()
        runner.version = lm_eval
        outcome = evaluate.evaluate(found, place, runner)
        return outcome, runner, place, found

    return run


def test_questions_are_asked_of_the_candidates_openai_endpoint(evaluated, store):
    outcome, runner, place, found = evaluated(QUESTIONS)

    ((request, endpoint),) = runner.asked
    assert (endpoint.base, endpoint.model, endpoint.api) == ("http://10.0.0.2:8000/v1", "demo", "chat")
    assert (request.task, request.max_tokens, request.num_fewshot) == ("ours", 32, None)
    assert [json.loads(line) for line in runner.questions[0].splitlines()] == [{"prompt": "What?", "answer": "That."}]
    assert outcome.summary == "ours exact_match 0.9"
    evidence = place.layout.evidence("demo", found.id, "run-1")
    report = HarnessReport.model_validate_json(store.read_bytes(f"{evidence}/harness.json"))
    assert (report.lm_eval, report.image, report.scores[0].samples) == ("0.4.13", "harness:1", 100)
    assert store.read_bytes(f"{evidence}/harness-candidate-ours.jsonl") == b'{"doc_id": 0}\n'


def test_a_task_of_lm_eval_gets_its_settings_and_the_pinned_commit_of_its_dataset(evaluated):
    task = {"task": "gsm8k", "samples": 40, "num_fewshot": 4, "max_tokens": 200, "at_least": 0.5}

    _, runner, _, _ = evaluated(task, api="completions", concurrency=3)

    ((request, endpoint),) = runner.asked
    assert (request.commit, request.samples, request.num_fewshot, request.max_tokens) == ("9" * 40, 40, 4, 200)
    assert (endpoint.api, endpoint.concurrency, request.questions) == ("completions", 3, None)


def test_only_tasks_that_are_compared_run_on_the_live_release(evaluated):
    compared = {**QUESTIONS, "at_least": None, "max_drop_of_live": 0.1}

    assert len(evaluated(QUESTIONS, live="demo-old")[1].asked) == 1
    assert len(evaluated(compared)[1].asked) == 1
    outcome, runner, _, _ = evaluated(compared, live="demo-old")

    assert [endpoint.base for _, endpoint in runner.asked] == ["http://10.0.0.2:8000/v1", "http://[fd00::1]:80/v1"]
    assert [row["target"] for row in outcome.data["harness"]["scores"]] == ["candidate", "live"]


def test_the_score_that_the_live_releases_own_run_recorded_is_used_again(evaluated, store):
    compared = {**QUESTIONS, "max_drop_of_live": 0.1}
    record(store, *evaluated(compared))

    outcome, runner, _, _ = evaluated(compared, live="demo-old")

    assert [endpoint.base for _, endpoint in runner.asked] == ["http://10.0.0.2:8000/v1"]
    live = outcome.data["harness"]["scores"][1]
    assert (live["target"], live["run"], live["scores"]["exact_match,stripped"]["value"]) == ("live", "run-1", 0.9)


@pytest.mark.parametrize("changed", ["lm_eval", "settings", "record"])
def test_a_record_of_something_else_is_not_used(evaluated, store, changed):
    compared = {**QUESTIONS, "max_drop_of_live": 0.1}
    record(store, *evaluated(compared))
    if changed == "record":
        store.put_bytes(workspace_uri(store), b"{")
    settings = {"max_tokens": 8} if changed == "settings" else {}

    _, runner, _, _ = evaluated(
        {**compared, **settings}, live="demo-old", lm_eval="0.5.0" if changed == "lm_eval" else "0.4.13"
    )

    assert len(runner.asked) == 2


def test_lines_without_an_answer_are_a_wrong_dataset(evaluated):
    with refused(what="have a line without prompt or answer", expected='"answer": str'):
        evaluated(QUESTIONS, lines=[{"prompt": "What?"}])


def test_a_release_without_a_harness_is_refused(tmp_path):
    with refused(what="demo has no gate.harness"):
        evaluate.run(release(), workspace(tmp_path))


def record(store, outcome, _, place, found):
    """Store the outcome as the result of evaluate of the release demo-old."""
    now = place.clock.now()
    fields = {"step": "evaluate", "run": "run-1", "outcome": "done", "summary": "", "data": outcome.data}
    result = StepResult(**fields, started_at=now, seconds=1.0)
    uri = place.layout.result("demo", "demo-old", "evaluate")
    store.put_bytes(uri, canonical_json(result.model_dump(mode="json")))


def workspace_uri(store):
    with suppress(StopIteration):
        return next(uri for uri in store.objects if uri.endswith("/results/evaluate.json"))
    raise AssertionError(list(store.objects))


def test_results_of_lm_eval_become_scores_and_a_log_of_every_document():
    samples = [
        {"doc_id": number, "doc_hash": "d", "prompt_hash": "p", "target_hash": "t", "exact_match": 1.0}
        for number in (0, 1, 1)  # a task with two filters has two lines per document
    ]
    row = {
        "alias": "gsm8k",
        "exact_match,strict-match": 0.5,
        "exact_match_stderr,strict-match": 0.1,
        "bleu,none": 3.0,
        "bleu_stderr,none": "N/A",
        "f1,none": float("nan"),
        "f1_stderr,none": 0.1,
    }

    read = measurement("gsm8k", {"results": {"gsm8k": row}, "samples": {"gsm8k": samples}, "versions": {"gsm8k": 3.0}})

    assert read.samples == 2
    assert read.scores == {
        "exact_match,strict-match": Score(value=0.5, stderr=0.1),
        "bleu,none": Score(value=3.0, stderr=None),
    }
    assert read.task_version == "3.0"
    assert len(read.log.splitlines()) == 3
    assert len(read.task_hash) == 64


def test_a_task_of_questions_holds_no_code():
    from slipway.tasks.adapters.judge.lm_eval_harness import HarnessRequest

    text = json.dumps(question_task(HarnessRequest("ours", None, max_tokens=8)))

    assert "!function" not in text
    assert "unsafe_code" not in text
