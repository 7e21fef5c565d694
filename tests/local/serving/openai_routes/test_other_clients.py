"""Clients of many makers against the APIs of a release on the laptop: the front, the API and the real Triton.

They run in an environment of their own (requirements/clients.in), which only `make test` builds. That of Vercel's AI SDK
needs Node.js, and nothing builds it: `npm ci --prefix tests/local/serving/openai_routes/ai`.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slipway.tasks.serving.openai_api.requests.anthropic import IGNORED, NEUTRAL, CountRequest, MessagesRequest
from tests.support.paths import ENVIRONMENTS, HUB

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
TOKENIZER = HUB / "slipway" / "demo-llama" / "v1"
CLIENTS = ENVIRONMENTS / "clients" / "bin"
OF_NODE = Path(__file__).with_name("ai")
LIMIT_S = 240
REQUESTS = 12


ONLY_NULL = {
    *("billing_policy", "compaction", "container", "fallback_credit_token", "inference_geo", "max_tokens", "thread"),
}
"""Parameters of Anthropic's API of which every value but null asks for something; a count takes no `max_tokens`."""


def run(command, folder):
    """The standard output of a client; nothing of this machine's configuration reaches it."""
    assert shutil.which(command[0]), "`make test` makes the environment: python3 -m local.environments clients"
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


def ask(client, api, folder):
    """What a script of this folder tells of its client."""
    script = Path(__file__).with_name(f"{client}_client.py")
    return json.loads(run([CLIENTS / "python", script, api.url, "demo", QUESTION], folder).splitlines()[-1])


def test_anthropics_package_has_answers_tools_counts_and_errors(api, tmp_path):
    found = ask("anthropic", api, tmp_path)

    assert (found["texts"], found["stopped"]) == ([ANSWER] * 2, ["end_turn"] * 2)
    assert found["tokens"][0] == found["tokens"][1]
    assert found["tokens"][0]["output_tokens"] > 3
    assert found["counted"] == found["tokens"][0]["input_tokens"] > 3
    for conversation in found["conversations"]:
        assert conversation["call"] == {"a": 1}
        assert (conversation["stopped"], bool(conversation["second turn"])) == ("tool_use", True)
    assert (found["absent"]["class"], found["absent"]["type"]) == ("NotFoundError", "not_found_error")
    assert "there is demo" in found["absent"]["text"]
    assert "prompt is too long" in found["too long"]["text"]
    assert "messages[0].content[0].type" in found["image"]["text"]
    assert all(found[name]["has id"] for name in ("absent", "too long", "image"))
    for module, names in found["parameters"].items():  # each that the package has is served, neutral or refused
        fields = (CountRequest if "count" in module else MessagesRequest).model_fields
        assert set(names) <= {*fields, *NEUTRAL, *IGNORED, *ONLY_NULL}, module


def test_langchain_has_answers_and_calls_of_both_apis(api, tmp_path):
    for found in ask("langchain", api, tmp_path).values():
        assert found["texts"] == [ANSWER] * 2
        assert [each["call"] for each in found["conversations"]] == [{"a": 1}] * 2
        assert all(each["second turn"] for each in found["conversations"])


def test_an_agent_of_openais_sdk_calls_its_tool_and_answers_in_both_apis(api, tmp_path):
    for found in ask("agents", api, tmp_path).values():
        assert found["plain"] == {"texts": [ANSWER] * 2, "calls": 0}
        assert found["with a tool"]["calls"] == 2
        assert all(found["with a tool"]["texts"])


def test_instructor_has_objects_by_calls_and_by_schema(api, tmp_path):
    found = ask("instructor", api, tmp_path)

    assert all(whole in (1, 2) and streamed == whole for whole, streamed in found.values())
    assert len(found) == 2


def test_litellm_has_answers_streams_and_errors(api, tmp_path):
    found = ask("litellm", api, tmp_path)

    assert (found["whole"], found["streamed"]) == (ANSWER, ANSWER)
    assert found["pieces"] > 1
    assert found["tokens"] == found["streamed tokens"] > 3
    assert 0 < found["plain tokens"] <= 16
    assert "there is demo" in found["refused"]
    assert [each["call"] for each in found["conversations"]] == [{"a": 1}] * 2
    assert all(each["second turn"] for each in found["conversations"])
    assert "tokens" in found["too long"]


def test_agents_of_pydantic_ai_have_answers_and_typed_output_of_all_apis(api, tmp_path):
    for name, found in ask("pydantic_ai", api, tmp_path).items():
        assert found["texts"] == [ANSWER] * 2, name
        assert found["second turn"], name
        assert {*found["objects"]} <= {1, 2}, name


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
@pytest.mark.skipif(
    not (OF_NODE / "node_modules").exists(),
    reason=f"no environment: npm ci --prefix tests/local/serving/{OF_NODE.name}",
)
def test_vercels_sdk_has_answers_objects_and_calls_of_all_its_apis(api, tmp_path):
    found = json.loads(run(["node", OF_NODE / "client.mjs", api.url, "demo", QUESTION], tmp_path).splitlines()[-1])

    assert {*found} == {"chat", "responses", "compatible"}
    for told in found.values():
        assert (told["texts"], told["ends"]) == ([ANSWER] * 2, ["stop"] * 2)
        assert told["tokens"][0] == told["tokens"][1] > told["pieces"] > 1
        assert all(each["a"] in (1, 2) for each in told["objects"])
        for conversation in told["conversations"]:
            assert conversation["call"]["a"] in (1, 2)
            assert (conversation["result"], bool(conversation["second turn"])) == ("one", True)
        assert told["too long"]["status"] == 400
        assert "maximum context length is" in told["too long"]["text"]


def aiperf(url, model, out, *, streaming):
    """A short run of AIPerf, which writes what it measured into `out`."""
    command = [CLIENTS / "aiperf", "profile", "--model", model, "--url", url, "--endpoint-type", "chat"]
    command += ["--tokenizer", TOKENIZER, "--use-server-token-count", "--concurrency", 2, "--request-count", REQUESTS]
    command += ["--isl", 8, "--isl-stddev", 0, "--osl", 8, "--osl-stddev", 0, "--random-seed", 1, "--ui-type", "none"]
    command += ["--prompt-corpus", "random"]  # to tokenize the sonnets takes 4 s of a CPU
    return [*command, "--output-artifact-dir", out, *(["--streaming"] if streaming else [])]


@pytest.mark.parametrize("streaming", [True, False])
def test_aiperfs_chat_endpoint_measures_without_an_error(api, tmp_path, streaming):
    run(aiperf(api.url, "demo", tmp_path / "out", streaming=streaming), tmp_path)
    measured = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())

    assert measured["request_count"]["avg"] == REQUESTS
    assert not (measured.get("error_request_count") or {}).get("avg")
    assert ("time_to_first_token" in measured) is streaming
    assert measured["output_sequence_length"]["max"] <= 8
