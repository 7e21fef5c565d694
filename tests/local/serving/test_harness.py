"""lm-evaluation-harness itself against the demo's model in the real Triton, and against a damaged copy of it."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import Verdict
from slipway.tasks.contracts.measured.harness import HarnessReport, HarnessScores
from slipway.tasks.contracts.measured.measurement import AnswerRow
from slipway.tasks.contracts.spec.gate import Goodput
from slipway.tasks.steps.gate import judge
from tests.fakes.releases import SPEC, release
from tests.local.serving.openai_server import OpenAiServer
from tests.support.paths import ENVIRONMENTS, HUB, REPOSITORY

PYTHON = ENVIRONMENTS / "harness" / "bin" / "python"
EVAL = HUB / "datasets/slipway/demo-questions/v1/eval.jsonl"
QUESTIONS = 40
TASK = {"task": "demo-questions", "questions": "hf://datasets/slipway/demo-questions@main/eval.jsonl"}
SMOKE = AnswerRow(suite="smoke", prompt="q", expected="a", answer="a", ok=True)


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("there is no environment harness: python3 -m local.environments harness")
    file = tmp_path_factory.mktemp("questions") / "questions.jsonl"
    file.write_text("\n".join(EVAL.read_text().splitlines()[:QUESTIONS]) + "\n")
    return file


@pytest.fixture(scope="module")
def evaluate(questions, tmp_path_factory):
    """Run the task on a server; what was measured."""

    def run(server, api="chat"):
        folder = tmp_path_factory.mktemp("evaluate")
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(folder),
            "TMPDIR": str(folder),
        }
        command = [PYTHON, "-m", "tests.local.serving.run_harness", f"{server.url}/v1", api, questions]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="module")
def good(evaluate, api):
    return evaluate(api)


@pytest.fixture(scope="module")
def damaged(evaluate, start_server, make_repository, tmp_path_factory):
    repository = make_repository()
    (weights,) = (repository / "demo" / "1" / "engine").glob("openvino_model.bin")
    damage(weights)
    server = start_server(repository)
    with OpenAiServer(server, tmp_path_factory.mktemp("openai")) as api:
        measured = evaluate(api)
    server.end()
    return measured


def damage(weights: Path):
    """Overwrite a quarter of the int8 weights."""
    data = bytearray(weights.read_bytes())
    start = len(data) // 4
    data[start : 2 * start] = np.random.default_rng(1).integers(0, 256, start, dtype=np.uint8).tobytes()
    weights.write_bytes(data)


def judged(candidate, live=None, **limits):
    """The harness's line for these measurements."""
    scores = tuple(
        HarnessScores(
            task="demo-questions",
            target=target,
            release_id=f"demo-{target}",
            run="run-1",
            key="a" * 64,
            samples=measured["samples"],
            scores=measured["scores"],
            task_version="1.0",
            task_hash=measured["task_hash"],
        )
        for target, measured in (("candidate", candidate), ("live", live))
        if measured
    )
    released = release(
        live="demo-live" if live else None, gate={**SPEC["gate"], "harness": {"tasks": [{**TASK, **limits}]}}
    )
    report = HarnessReport(lm_eval=candidate["lm_eval"], image="slipway/harness:dev", scores=scores)
    verdict, _ = judge(released, Evidence(requests=(), answers=[SMOKE], goodput=Goodput(), harness=report))
    return verdict.judgements[-1]


def test_the_demos_model_answers_the_demos_questions(good):
    assert good["samples"] == QUESTIONS
    assert good["scores"]["exact_match,stripped"]["value"] >= 0.95
    assert judged(good, at_least=0.9).verdict is Verdict.PASSED
    assert not good["torch"]


def test_every_question_and_answer_is_in_the_log(good):
    asked = [json.loads(line) for line in EVAL.read_text().splitlines()[:QUESTIONS]]

    assert [row["doc"]["prompt"] for row in good["log"]] == [line["prompt"] for line in asked]
    assert {row["target"] for row in good["log"]} == {line["answer"] for line in asked}
    assert all(row["resps"][0][0].strip() for row in good["log"])


def test_a_damaged_model_fails_its_line(good, damaged):
    assert damaged["task_hash"] == good["task_hash"]
    assert judged(damaged, at_least=0.9).verdict is Verdict.FAILED
    assert judged(damaged, live=good, max_drop_of_live=0.05).verdict is Verdict.FAILED


def test_prompts_may_be_continued_as_they_are(evaluate, api):
    measured = evaluate(api, "completions")

    assert measured["samples"] == QUESTIONS
    assert measured["log"][0]["arguments"]
