"""LiteLLM and NVIDIA's AIPerf against OpenAI's API on the laptop: the front, the API and the real Triton.

They run in an environment of their own (requirements/clients.in), which only `make test` builds.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ENVIRONMENTS, HUB

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
TOKENIZER = HUB / "slipway" / "demo-llama" / "v1"
CLIENTS = ENVIRONMENTS / "clients" / "bin"
LIMIT_S = 240
REQUESTS = 12


def run(command, folder):
    """The standard output of a client; nothing of this machine's configuration reaches it."""
    assert CLIENTS.exists(), "`make test` makes the environment: python3 -m local.environments clients"
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would download a list of prices
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


def test_litellm_has_answers_streams_and_errors(api, tmp_path):
    script = Path(__file__).with_name("litellm_client.py")
    found = json.loads(run([CLIENTS / "python", script, api.url, "demo", QUESTION], tmp_path).splitlines()[-1])

    assert (found["whole"], found["streamed"]) == (ANSWER, ANSWER)
    assert found["pieces"] > 1
    assert found["tokens"] == found["streamed tokens"] > 3
    assert 0 < found["plain tokens"] <= 16
    assert "there is demo" in found["refused"]
    assert found["second turn"]
    assert "tokens" in found["too long"]


@pytest.mark.parametrize("streaming", [True, False])
def test_aiperfs_chat_endpoint_measures_without_an_error(api, tmp_path, streaming):
    command = [CLIENTS / "aiperf", "profile", "--model", "demo", "--url", api.url, "--endpoint-type", "chat"]
    command += ["--tokenizer", TOKENIZER, "--use-server-token-count", "--concurrency", 2, "--request-count", REQUESTS]
    command += ["--isl", 8, "--isl-stddev", 0, "--osl", 8, "--osl-stddev", 0, "--random-seed", 1, "--ui-type", "none"]
    run([*command, "--output-artifact-dir", tmp_path / "out", *(["--streaming"] if streaming else [])], tmp_path)
    measured = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())

    assert measured["request_count"]["avg"] == REQUESTS
    assert not (measured.get("error_request_count") or {}).get("avg")
    assert ("time_to_first_token" in measured) is streaming
    assert measured["output_sequence_length"]["max"] <= 8
