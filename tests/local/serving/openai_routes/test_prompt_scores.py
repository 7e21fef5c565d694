"""Multiple choice by lm_eval itself: log-probabilities of prompts, against those of transformers."""

import functools
import itertools
import json
import os
import subprocess

import pytest

from tests.local.serving.openai_server import OpenAiServer
from tests.local.serving.served_engine import CHECKPOINT
from tests.support.paths import ENVIRONMENTS, HUB, REPOSITORY

PYTHON = ENVIRONMENTS / "harness" / "bin" / "python"
QUESTIONS = HUB / "datasets/slipway/demo-questions/v1/eval.jsonl"
COUNT, BOS = 6, "<s>"
QUANTIZED = 0.25
"""Of a choice's log-likelihood: the engine's weights have 8 bits, those of the checkpoint 32."""


@pytest.fixture(scope="module")
def scoring(start_server, make_repository, tmp_path_factory):
    server = start_server(make_repository(scores_prompts=True))
    with OpenAiServer(server, tmp_path_factory.mktemp("openai")) as api:
        yield api
    server.end()


@pytest.fixture(scope="module")
def choices(tmp_path_factory):
    """Questions as the demo's chat template writes them, each with its answer and with that to the next one."""
    asked = [json.loads(line) for line in QUESTIONS.read_text().splitlines()[: COUNT + 1]]
    rows = [
        {
            "prompt": f"{BOS}<|user|>{one['prompt']}<|assistant|>",
            "choices": [other["answer"], one["answer"]],
            "target": 1,
        }
        for one, other in itertools.pairwise(asked)
    ]
    file = tmp_path_factory.mktemp("questions") / "choices.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, rows


def by_lm_eval(api, file, folder):
    if not PYTHON.exists():
        pytest.skip("there is no environment harness: python3 -m local.environments harness")
    command = [PYTHON, "-m", "tests.local.serving.openai_routes.run_loglikelihood", f"{api.url}/v1", CHECKPOINT]
    command += [ENVIRONMENTS / "tasks/lib/python3.11/site-packages", file]
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "HOME": str(folder),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@functools.cache
def source():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoTokenizer.from_pretrained(CHECKPOINT), AutoModelForCausalLM.from_pretrained(CHECKPOINT)


def by_transformers(prompt, choice):
    """The log-likelihood of a choice behind its prompt, and whether it is what the model would write."""
    import torch

    tokenizer, model = source()
    before, whole = (
        tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids for text in (prompt, prompt + choice)
    )
    with torch.no_grad():
        rows = torch.log_softmax(model(whole).logits[0].double(), -1)
    places = range(before.shape[1], whole.shape[1])
    return (
        sum(rows[place - 1, whole[0, place]].item() for place in places),
        all(rows[place - 1].argmax() == whole[0, place] for place in places),
    )


def test_lm_eval_finds_what_transformers_finds(scoring, choices, tmp_path):
    file, rows = choices
    found = by_lm_eval(scoring, file, tmp_path)
    expected = [[by_transformers(row["prompt"], choice) for choice in row["choices"]] for row in rows]

    assert found["accuracy"] == 1.0
    for likelihoods, truths in zip(found["samples"], expected, strict=True):
        assert [greedy for _, greedy in likelihoods] == [greedy for _, greedy in truths] == [False, True]
        assert [value for value, _ in likelihoods] == pytest.approx([value for value, _ in truths], abs=QUANTIZED)
