"""What the vllm kind promises of its answers, shown with vLLM itself."""

import json
import os
import signal
import subprocess
from http import HTTPStatus

import httpx
import openai
import pytest

from tests.local.serving.openai_server import client_of
from tests.local.serving.triton_server import LOOPBACK
from tests.support.waiting import until
from tests.vllm.conftest import RANK, write_adapter

QUESTION, ANSWER = "What is the capital of France?", "The capital of France is Paris."
ASKED = [{"role": "user", "content": QUESTION}]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
OBJECT = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 17}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": OBJECT}}
ENGINE = "VLLM::EngineCore"
"""What vLLM calls its engine's process (vllm/v1/engine/core.py)."""


@pytest.fixture
def client(api):
    with client_of(api) as made:
        yield made


def ask(client, **more):
    return client.chat.completions.create(**{"model": "demo", "messages": ASKED, **more})


def said(client, **more):
    return ask(client, **more).choices[0].message.content


def test_a_conversation_is_answered_whole_and_streamed_with_the_same_usage(client):
    whole, chunks = ask(client), list(ask(client, **USAGE))

    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (ANSWER, "stop")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens > 3


def test_a_prompt_is_continued_without_the_chat_template(client):
    plain = client.completions.create(model="demo", prompt=QUESTION, max_tokens=1)

    assert ask(client, max_tokens=1).usage.prompt_tokens == plain.usage.prompt_tokens + 2


def test_an_answer_ends_before_a_stop_word_and_at_its_length(client):
    assert said(client, stop=[" France"]) == "The capital of"
    assert ask(client, max_tokens=2).choices[0].finish_reason == "length"


def test_a_seed_repeats_an_answer_and_each_of_several_has_its_own(client):
    warm = {"temperature": 2.0, "seed": 7, "max_tokens": 20}
    one, two = ([choice.message.content for choice in ask(client, **warm, n=2).choices] for _ in range(2))

    assert one == two
    assert one[0] != one[1]


@pytest.mark.parametrize("alternatives", [1, 3, 20])
def test_each_token_has_as_many_alternatives_as_were_asked_for(client, alternatives):
    asked = {"logprobs": True, "top_logprobs": alternatives, "max_tokens": 12, "temperature": 2.0, "seed": 3}
    (choice,) = ask(client, **asked).choices

    assert {len(token.top_logprobs) for token in choice.logprobs.content} == {alternatives}
    assert "".join(token.token for token in choice.logprobs.content) == choice.message.content


def test_an_echo_has_the_prompts_tokens_each_with_the_likeliest_one(client):
    asked = {"model": "demo", "prompt": "What is the capital", "max_tokens": 1, "temperature": 0}
    (choice,) = client.completions.create(**asked, echo=True, logprobs=1).choices
    first, *likeliest = choice.logprobs.top_logprobs

    assert choice.text.startswith("What is the capital")
    assert (first, choice.logprobs.token_logprobs[0]) == (None, None)
    assert all(
        max(top.values()) >= told for top, told in zip(likeliest, choice.logprobs.token_logprobs[1:], strict=True)
    )


def test_an_answer_obeys_a_schema_and_so_do_the_arguments_of_a_forced_call(client):
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": OBJECT}}
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = said(client, response_format=schema, temperature=1.0, seed=1)
    (call,) = ask(client, tools=[TOOL], tool_choice=choice, temperature=1.0, seed=1).choices[0].message.tool_calls

    for text in (answer, call.function.arguments):
        found = json.loads(text)
        assert (3 <= found["a"] <= 17, found["b"] in {"x", "y"}, len(found)) == (True, True, 2)


def test_an_adapter_answers_by_its_name_beside_the_model_itself(client):
    adapted = said(client, model="demo:odd", max_tokens=10)

    assert adapted != said(client, max_tokens=10)
    assert said(client) == ANSWER


def test_adapters_come_and_go_while_the_engine_runs(server, live_adapters):
    def told(**labels):
        """What the pod's other container says that names mean."""
        document = {"labels": labels, "names": [*labels], "listed": []}
        (live_adapters / "new.json").write_text(json.dumps(document))
        (live_adapters / "new.json").replace(live_adapters / "adapters.json")

    def answered(name):
        return server.generate(text_input=QUESTION, max_tokens=10, lora_name=name)

    first, second, large = (letter * 64 for letter in "abc")
    for key, rank, seed in ((first, RANK, RANK), (second, RANK // 2, 1), (large, 4 * RANK, 2)):
        write_adapter(live_adapters / key, rank, seed=seed)
    assert "this release has odd." in answered("live")[1]["error"]

    told(live=first)
    until(lambda: answered("live")[0] == HTTPStatus.OK)
    before = answered("live")[1]["text_output"]
    assert before == answered("odd")[1]["text_output"] != ANSWER

    # of a rank above the engine's room: the name keeps what it means, and the engine goes on
    told(live=first, large=large)
    told(**{"live": second, "large": large, f"live@{second[:12]}": second})
    until(lambda: answered(f"live@{second[:12]}")[0] == HTTPStatus.OK)
    assert answered("live")[1]["text_output"] != before
    assert answered("large")[0] == HTTPStatus.BAD_REQUEST

    told()
    until(lambda: answered("live")[0] == HTTPStatus.BAD_REQUEST)
    assert server.generate(text_input=QUESTION)[1]["text_output"] == ANSWER


def test_parameters_that_vllm_alone_has_are_obeyed(client):
    likeliest = {"temperature": 2.0, "max_tokens": 20, "extra_body": {"min_p": 1.0}}
    endless = ask(client, max_tokens=40, extra_body={"ignore_eos": True})

    assert said(client, **likeliest) == ANSWER
    assert (endless.usage.completion_tokens, endless.choices[0].finish_reason) == (40, "length")
    assert "Paris" not in said(client, extra_body={"bad_words": ["Paris"]})


def test_a_temperature_that_vllm_does_not_take_is_refused_by_its_name(client):
    with pytest.raises(openai.BadRequestError, match="temperature is 3; this model takes at most 2"):
        ask(client, temperature=3.0)


def test_the_dashboards_metrics_are_there_and_count(client, server):
    ask(client)
    text = httpx.get(f"http://{LOOPBACK}:{server.metrics_port}/metrics").text
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("vllm:"))

    for name in ("prompt_tokens_total", "generation_tokens_total", "time_to_first_token_seconds_count"):
        (value,) = [float(each) for line, each in values.items() if line.startswith(f"vllm:{name}{{")]
        assert value > 0, name
    assert any(line.startswith("vllm:time_per_output_token_seconds_bucket") for line in values)


def test_an_engine_that_died_is_unavailable_and_ends_its_server(client, server):
    """Last: the server is gone afterwards, and its pod would start it again."""
    os.kill(engine_below(server.process.pid), signal.SIGKILL)

    until(lambda: server.process.poll() is not None)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert caught.value.status_code == 503


def engine_below(pid):
    """The engine's process among those that a server started."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    below = {pid}
    for _ in rows:
        below |= {int(child) for child, parent, _ in rows if int(parent) in below}
    (found,) = [int(child) for child, _, name in rows if int(child) in below and name.startswith(ENGINE)]
    return found
