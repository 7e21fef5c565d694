"""What a model thought, beside its answer: in the form of each route, whole and streamed, and sent back."""

import json

import pytest

from tests.unit.openai_api.test_anthropic_messages import ASKED, FORCED
from tests.unit.openai_api.test_responses import by_openai, streamed, whole
from tests.unit.openai_api.test_routes import CHAT, WITH_TOOLS, Triton, events, post

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
THOUGHT, TEXT = "Is it <tool_call>? No.", "Hello!"


def response(text="", thought="", **more):
    said = {"reasoning_content": thought} if thought else {}
    return {"text_output": text, "finish_reason": "", "tool_call_format": "hermes", **said, **more}


def thinking(text=TEXT):
    """Responses with pieces of a thought, one with the end of it and the beginning of the answer, and the answer."""
    end = {"finish_reason": "stop", "prompt_tokens": 4, "completion_tokens": 9}
    return [
        [response(thought=THOUGHT[:9])],
        [response(text[:2], THOUGHT[9:]), response(text[2:])],
        [response(**end)],
    ]


def model(text=TEXT):
    return Triton(thinking(text), WITH_TOOLS)


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def test_a_message_has_its_thought_beside_its_content():
    _, text = post(model(TEXT + CALL), {**CHAT, "tools": TOOLS})
    message = json.loads(text)["choices"][0]["message"]

    assert (message["reasoning_content"], message["content"]) == (THOUGHT, TEXT)
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["f"]


def test_a_stream_has_the_thought_in_deltas_of_its_own():
    _, text = post(model(), {**CHAT, "stream": True})
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events(text)[:-1]]

    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == THOUGHT
    assert "".join(delta.get("content", "") for delta in deltas) == TEXT


def test_the_text_of_a_completion_has_no_thought():
    _, text = post(model(), {"model": "demo", "prompt": "Hi"}, "/v1/completions")

    assert json.loads(text)["choices"][0]["text"] == TEXT


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_response_has_an_item_of_reasoning_before_its_message(ask):
    """OpenAI's own package puts the events together."""
    triton = model()
    first = by_openai(triton, lambda responses: ask(responses, input="Hi"))
    reasoning, message = first.output

    assert [part.text for part in reasoning.content] == [THOUGHT]
    assert (reasoning.type, reasoning.status, message.content[0].text) == ("reasoning", "completed", TEXT)

    again = [*(item.model_dump() for item in first.output), {"role": "user", "content": "And?"}]
    by_openai(triton, lambda responses: whole(responses, input=again))
    said, asked = json.loads(triton.asked[1][1]["messages"])
    assert said == {"role": "assistant", "content": TEXT, "reasoning_content": THOUGHT}
    assert asked == {"role": "user", "content": "And?"}


def test_thoughts_before_a_call_belong_to_its_message():
    call = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    output = {"type": "function_call_output", "call_id": "1", "output": "4"}
    triton = model()
    by_openai(triton, lambda responses: whole(responses, input=[thought, call, output]))
    said, _ = json.loads(triton.asked[0][1]["messages"])

    assert (said["reasoning_content"], said["tool_calls"][0]["function"]["name"]) == ("Hm.", "f")


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        ({"thinking": {"type": "adaptive"}}, ["thinking", "text", "tool_use"]),
        ({"thinking": {"type": "disabled"}}, ["text", "tool_use"]),
        ({}, ["text", "tool_use"]),
    ],
)
def test_a_message_of_anthropics_has_a_block_of_thinking_where_the_client_wants_it(asked, kinds):
    tools = {"tools": FORCED["tools"]}
    _, text = post(model(TEXT + CALL), {**ASKED, **asked, **tools}, "/v1/messages")
    _, events_of = post(model(TEXT + CALL), {**ASKED, **asked, **tools, "stream": True}, "/v1/messages")
    blocks = json.loads(text)["content"]
    told = [json.loads(line.removeprefix("data: ")) for line in events_of.splitlines() if line.startswith("data: ")]
    deltas = [each["delta"] for each in told if each["type"] == "content_block_delta"]

    assert [block["type"] for block in blocks] == kinds
    assert [each["content_block"]["type"] for each in told if each["type"] == "content_block_start"] == kinds
    assert "".join(delta.get("thinking", "") for delta in deltas) == (THOUGHT if "thinking" in kinds else "")
    assert "".join(delta.get("text", "") for delta in deltas) == TEXT
    if "thinking" in kinds:
        assert blocks[0] == {"type": "thinking", "thinking": THOUGHT, "signature": ""}
