"""Anthropic's /v1/messages: what the model is asked, documents and events, and errors in that API's own form.

tests/local/serving/openai_routes/test_other_clients.py sends Anthropic's own package.
"""

import json

import pytest

from slipway.tasks.contracts.errors import InputError, UnavailableError
from tests.unit.openai_api.test_routes import HELLO, WITH_TOOLS, Triton, answer_of, exchanged, post

PATH = "/v1/messages"
HI = [{"role": "user", "content": "Hi"}]
ASKED = {"model": "demo", "max_tokens": 9, "messages": HI}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
MARK = {"type": "ephemeral"}
FORCED = {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "f"}}


def message(answer, **asked):
    status, text = post(Triton(answer, WITH_TOOLS), {**ASKED, **asked}, PATH)
    assert status == 200, text
    return json.loads(text)


def events(answer, **asked):
    status, text = post(Triton(answer, WITH_TOOLS), {**ASKED, "stream": True, **asked}, PATH)
    assert status == 200, text
    pairs = [each.split("\n", 1) for each in text.split("\n\n") if each]
    documents = [json.loads(data.removeprefix("data: ")) for _, data in pairs]
    assert [name.removeprefix("event: ") for name, _ in pairs] == [document["type"] for document in documents]
    return documents


def asked_of(**asked):
    """What the model is asked."""
    triton = Triton(HELLO, WITH_TOOLS)
    status, text = post(triton, {**ASKED, **asked}, PATH)
    assert status == 200, text
    return triton.asked[0][1]


def error(answer=HELLO, path=PATH, **asked):
    ((status, text, headers),) = exchanged(Triton(answer, WITH_TOOLS), ("POST", path, {**ASKED, **asked}))
    told = json.loads(text)
    assert (told["type"], told["request_id"]) == ("error", headers["Request-Id"])
    return status, told["error"]


def test_an_answer_is_one_document():
    told = message(HELLO)

    assert told["content"] == [{"type": "text", "text": "Hello!"}]
    assert (told["role"], told["stop_reason"], told["stop_sequence"]) == ("assistant", "end_turn", None)
    assert told["usage"] == {"input_tokens": 4, "output_tokens": 3}


def test_an_answer_says_which_stop_sequence_ended_it():
    """As LangChain and others read it: both fields, in the document and in a stream's last delta."""
    answer = [[{"text_output": "Hello", "finish_reason": "stop", "stop_word": "!"}]]
    *_, delta, _ = events(answer)
    told = message(answer)

    assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "!")
    assert (delta["delta"]["stop_reason"], delta["delta"]["stop_sequence"]) == ("stop_sequence", "!")


def test_a_stream_has_blocks_within_a_message():
    start, *blocks, delta, stop = events(answer_of(f"Look.{CALL}Then."))

    assert (start["type"], start["message"]["content"], stop["type"]) == ("message_start", [], "message_stop")
    assert (delta["delta"]["stop_reason"], delta["usage"]) == ("tool_use", {"input_tokens": 4, "output_tokens": 3})
    kinds = [(each["index"], each["type"]) for each in blocks if each["type"] != "content_block_delta"]
    assert kinds == [(index, f"content_block_{kind}") for index in range(3) for kind in ("start", "stop")]
    assert "".join(each["delta"].get("text", "|") for each in blocks if "delta" in each) == "Look.|Then."


def test_a_stream_says_what_the_document_says():
    answer = answer_of(f"Look.{CALL}")
    _, *blocks, _, _ = events(answer)
    (call,) = [each["content_block"] for each in blocks if each.get("content_block", {}).get("type") == "tool_use"]
    (given,) = [each["delta"]["partial_json"] for each in blocks if "partial_json" in each.get("delta", {})]
    text, whole = message(answer)["content"]

    assert text == {"type": "text", "text": "Look."}
    assert (whole["name"], whole["input"]) == (call["name"], json.loads(given)) == ("f", {"a": 1})


@pytest.mark.parametrize("text", ['{"a": ', "[1]", '{"a": NaN}'])
def test_a_forced_call_without_an_object_is_text(text):
    assert message(answer_of(text), **FORCED)["content"] == [{"type": "text", "text": text.strip()}]


def test_an_answer_that_was_cut_off_says_so():
    cut = [[{"text_output": "Hel", "finish_reason": "length"}]]

    assert message(cut)["stop_reason"] == events(cut)[-2]["delta"]["stop_reason"] == "max_tokens"


def test_parameters_have_the_names_of_the_core():
    asked = asked_of(stop_sequences=["x"], temperature=0.5, tools=TOOLS, system="Be brief.", metadata={"user_id": "u"})

    assert (asked["max_tokens"], asked["temperature"], json.loads(asked["tools"])[0]["function"]["name"]) == (
        9,
        0.5,
        "f",
    )
    assert asked["stop_words"] == ["x"]
    assert json.loads(asked["messages"]) == [{"role": "system", "content": "Be brief."}, *HI]


def test_an_answer_and_its_results_come_back_as_messages_of_a_chat():
    said = [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "Look.", "citations": None, "parsed_output": None},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, "caller": None},
        {"type": "tool_use", "id": "c2", "name": "f", "input": {}},
    ]
    heard = [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "21"}],
            "cache_control": MARK,
        },
        {"type": "tool_result", "tool_use_id": "c2", "content": "gone", "is_error": True},
        {"type": "text", "text": "So?"},
    ]
    turns = [*HI, {"role": "assistant", "content": said}, {"role": "user", "content": heard}]
    _, answer, *results, last = json.loads(asked_of(messages=turns, tools=TOOLS)["messages"])

    assert (answer["content"], answer["reasoning_content"]) == ("Look.", "Hm.")
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == [{"a": 1}, {}]
    assert [(each["tool_call_id"], each["content"]) for each in results] == [("c1", "21"), ("c2", "Error: gone")]
    assert last == {"role": "user", "content": "So?"}


def test_a_schema_is_that_of_response_format():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}

    assert json.loads(asked_of(output_config={"format": {"type": "json_schema", "schema": schema}})["json_schema"])


def test_the_tokens_of_a_prompt_are_counted():
    triton = Triton(HELLO, WITH_TOOLS)
    body = {name: value for name, value in {**ASKED, **FORCED}.items() if name != "max_tokens"}
    status, text = post(triton, body, f"{PATH}/count_tokens")

    assert (status, json.loads(text)) == (200, {"input_tokens": 4})
    assert (triton.asked[0][1]["max_tokens"], "tools" in triton.asked[0][1]) == (1, True)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}]},
            "tool_use",
        ),
        ({"messages": [*HI, {"role": "assistant", "content": "The"}]}, "messages"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"container": "c"}, "container"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"top_p": 0.5}, "top_p"),
        ({"output_config": {"effort": "low"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "output_config.format"),
    ],
)
def test_a_wrong_request_names_the_parameter_of_this_route(asked, named):
    status, told = error(**asked)

    assert (status, told["type"]) == (400, "invalid_request_error")
    assert named in told["message"]
    assert "response_format" not in told["message"]


@pytest.mark.parametrize(
    ("found", "status", "kind", "text"),
    [
        ({"model": "absent"}, 404, "not_found_error", "there is demo"),
        ({"answer": [UnavailableError("stopping")]}, 503, "overloaded_error", "stopping"),
        (
            {"answer": [InputError("the prompt: this model takes at most 3")]},
            400,
            "invalid_request_error",
            "prompt is too long",
        ),
        ({"path": f"{PATH}/batches"}, 404, "not_found_error", "Not Found"),
        ({"path": f"{PATH}/count_tokens"}, 400, "invalid_request_error", "max_tokens"),
    ],
)
def test_errors_have_the_form_of_this_api(found, status, kind, text):
    got, told = error(**found)

    assert (got, told["type"]) == (status, kind)
    assert text in told["message"]


def test_a_stream_that_breaks_off_ends_with_an_error():
    *_, last = events([HELLO[0], UnavailableError("gone")])

    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
