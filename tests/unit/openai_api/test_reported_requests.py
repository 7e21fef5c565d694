"""Requests that people reported other servers for: each with the report, and what is answered here."""

import json

import pytest

from slipway.tasks.contracts.errors import InputError
from tests.unit.openai_api.models import OURS, PROMPT_MODEL, VLLM, VLLM_OUTPUTS, config_of
from tests.unit.openai_api.test_routes import CHAT, HELLO, WITH_TOOLS, Triton, post

GUIDED = config_of((*OURS, "json_schema", "min_tokens"))
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
USER = {"role": "user", "content": "Hi"}
EMPTY_MESSAGES = [{"content": None}, {}, {"content": ""}, {"content": None, "reasoning_content": "Hm."}]
FORMATS = {
    "llama.cpp's": {"response_format": {"type": "json_object", "schema": SCHEMA}},
    "llama.cpp's documentation's": {"response_format": {"type": "json_schema", "schema": SCHEMA}},
    "strict beside": {"response_format": {"type": "json_schema", "strict": True, "json_schema": {"schema": SCHEMA}}},
    "text-generation-inference's": {"response_format": {"type": "json", "value": SCHEMA}},
    "a text": {"guided_json": json.dumps(SCHEMA)},
    "vLLM's until 0.11": {"guided_json": SCHEMA},
    "vLLM's from 0.12 on": {"structured_outputs": {"json": SCHEMA}},
}
"""https://github.com/abetlen/llama-cpp-python/pull/1677, https://github.com/ggml-org/llama.cpp/pull/28697,
https://github.com/ggml-org/llama.cpp/issues/11847, https://github.com/huggingface/huggingface_hub/pull/2383,
https://github.com/h2oai/h2ogpt/issues/1526 and https://github.com/vllm-project/vllm/issues/53975"""


@pytest.mark.parametrize("message", EMPTY_MESSAGES, ids=json.dumps)
def test_an_assistant_may_have_said_nothing(message):
    """https://github.com/vllm-project/vllm/issues/21089, https://github.com/tashfeenahmed/freellmapi/issues/165"""
    triton = Triton(HELLO)
    status, text = post(triton, {**CHAT, "messages": [USER, {"role": "assistant", **message}, USER]})

    assert status == 200, text
    assert json.loads(triton.asked[0][1]["messages"])[1]["content"] == ""


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_nobody_else_may(role):
    status, text = post(Triton(HELLO), {**CHAT, "messages": [{"role": role, "content": None}]})

    assert (status, json.loads(text)["error"]["param"]) == (400, "messages[0]")


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/v1/chat/completions", CHAT, "max_tokens"),
        ("/v1/completions", {"model": "demo", "prompt": "Hi"}, "max_tokens"),
        ("/v1/responses", {"model": "demo", "input": "Hi"}, "max_output_tokens"),
        ("/v1/messages", CHAT, "max_tokens"),
    ],
)
def test_a_whole_number_may_be_written_with_a_point(path, body, name):
    """https://github.com/BerriAI/litellm/issues/1854; a number with a fraction is refused by its name"""
    triton = Triton(HELLO)
    status, text = post(triton, {**body, name: 64.0}, path)
    refused, why = post(Triton(HELLO), {**body, name: 64.5}, path)

    assert (status, triton.asked[0][1]["max_tokens"]) == (200, 64), text
    assert (refused, name in why) == (400, True)


@pytest.mark.parametrize("asked", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("body", [CHAT, {"model": "demo", "prompt": "Hi"}], ids=["chat", "completion"])
def test_a_schema_in_the_form_of_another_server_is_obeyed(asked, body):
    triton = Triton(HELLO, GUIDED)
    status, text = post(triton, {**body, **asked}, "/v1/completions" if "prompt" in body else "/v1/chat/completions")

    assert status == 200, text
    assert json.loads(triton.asked[0][1]["json_schema"]) == SCHEMA


@pytest.mark.parametrize("asked", FORMATS.values(), ids=FORMATS)
def test_or_refused_by_its_own_name(asked):
    (name,) = asked
    twice = {**CHAT, "guided_json": SCHEMA, "response_format": {"type": "json_object"}, **asked}
    tools = {**CHAT, **asked, "tools": [{"type": "function", "function": {"name": "f"}}]}
    told = [post(Triton(HELLO), {**CHAT, **asked}), *(post(Triton(HELLO, GUIDED), each) for each in (twice, tools))]

    assert [status for status, _ in told] == [400] * 3
    assert [json.loads(text)["error"]["param"] for _, text in (told[0], told[2])] == [name] * 2
    assert "Send one of them" in told[1][1]


@pytest.mark.parametrize("form", ["regex", "choice", "grammar"])
def test_another_form_of_guided_decoding_is_refused_by_its_place(form):
    status, text = post(Triton(HELLO, GUIDED), {**CHAT, "structured_outputs": {"json": SCHEMA, form: "a"}})

    assert (status, json.loads(text)["error"]["param"]) == (400, f"structured_outputs.{form}")


def test_encrypted_thoughts_are_neither_needed_nor_read():
    """https://github.com/anomalyco/opencode/issues/5104: agents ask for them whenever nothing is stored."""
    triton = Triton(HELLO)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    asked = {"model": "demo", "store": False, "include": ["reasoning.encrypted_content"]}
    status, text = post(triton, {**asked, "input": [USER, reasoning, USER]}, "/v1/responses")

    assert status == 200, text
    assert "gAAAA" not in triton.asked[0][1]["messages"]


F, G = ({"type": "function", "function": {"name": name}} for name in "fg")
ALLOWED = [
    {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [G]}},
    {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]},
]


@pytest.mark.parametrize("choice", ALLOWED, ids=["of chats", "of responses"])
def test_a_choice_of_allowed_tools_leaves_these(choice):
    """OpenAI's reference, tool_choice; clients keep the list of tools as it is, for the cache of prompts."""
    triton = Triton(HELLO, WITH_TOOLS)
    status, text = post(triton, {**CHAT, "tools": [F, G], "tool_choice": choice})

    assert status == 200, text
    assert [each["function"]["name"] for each in json.loads(triton.asked[0][1]["tools"])] == ["g"]


def test_one_of_the_allowed_tools_may_be_required():
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [G]}}
    triton = Triton(HELLO, config_of((*OURS, "json_schema", "tools")))
    status, text = post(triton, {**CHAT, "tools": [F, G], "tool_choice": choice})
    (call,) = json.loads(triton.asked[0][1]["json_schema"])["anyOf"]

    assert status == 200, text
    assert call["properties"]["name"] == {"const": "g"}


@pytest.mark.parametrize("tools", [[], 3, [{"name": "h"}], [3], None])
@pytest.mark.parametrize("mode", ["auto", "any"])
def test_allowed_tools_that_are_none_of_the_request_are_refused(tools, mode):
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
    status, text = post(Triton(HELLO, WITH_TOOLS), {**CHAT, "tools": [F, G], "tool_choice": choice})

    assert (status, json.loads(text)["error"]["param"]) == (400, "tool_choice")


def test_the_name_of_a_function_may_stand_beside_its_type():
    triton = Triton(HELLO, config_of((*OURS, "json_schema", "tools")))
    status, text = post(triton, {**CHAT, "tools": [F], "tool_choice": {"type": "function", "name": "f"}})

    assert status == 200, text


def test_hints_for_a_cache_of_prompts_change_nothing():
    """https://github.com/earendil-works/pi/issues/7938: agents mark tools, messages and their parts."""
    hint = {"cache_control": {"type": "ephemeral"}}
    part = {"role": "user", "content": [{"type": "text", "text": "Hi", **hint}]}
    triton = Triton(HELLO, WITH_TOOLS)
    status, text = post(triton, {**CHAT, "messages": [{**USER, **hint}, part], "tools": [{**F, **hint}]})

    assert status == 200, text
    assert "cache_control" not in json.dumps(triton.asked[0][1])


def test_hints_for_a_cache_change_nothing_in_responses():
    hint = {"cache_control": {"type": "ephemeral"}}
    item = {"role": "user", "content": [{"type": "input_text", "text": "Hi", **hint}], **hint}
    asked = {"model": "demo", "input": [item], "tools": [{"type": "function", "name": "f", **hint}]}
    triton = Triton(HELLO, WITH_TOOLS)
    status, text = post(triton, asked, "/v1/responses")

    assert status == 200, text
    assert "cache_control" not in json.dumps(triton.asked[0][1])


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_what_is_wrong_with_tools_is_said_in_our_own_words(path):
    function = {"name": "f", "parameters": {"type": "object"}}
    tool = {"type": "function", **(function if path == "/v1/responses" else {"function": function})}
    asked = {"model": "demo", "input": "Hi"} if path == "/v1/responses" else CHAT
    status, text = post(Triton(HELLO, WITH_TOOLS), {**asked, "tools": [tool, tool]}, path)

    assert status == 400
    assert json.loads(text)["error"]["message"].startswith("tools: two functions are called 'f'. Rename one.")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_an_effort_is_an_argument_of_the_chat_template(path):
    """https://github.com/BerriAI/litellm/pull/38842: Codex sends it to every model."""
    effort = {"reasoning_effort": "low"}
    asked = CHAT | effort if "chat" in path else {"model": "demo", "input": "Hi", "reasoning": {"effort": "low"}}
    triton = Triton(HELLO)
    status, text = post(triton, asked, path)
    refused = Triton([InputError("reasoning_effort has no effect: the chat template of this model does not take it.")])
    told, why = post(refused, asked, path)

    assert (status, json.loads(triton.asked[0][1]["chat_template_kwargs"])) == (200, effort), text
    assert (told, json.loads(why)["error"]["param"]) == (
        400,
        next(iter(effort)) if "chat" in path else "reasoning.effort",
    )


@pytest.mark.parametrize(
    "config",
    [config_of((*OURS, "json_schema", "ignore_eos")), config_of(VLLM, VLLM_OUTPUTS, **PROMPT_MODEL)],
    ids=["ours", "vllm_backend"],
)
@pytest.mark.parametrize(
    "asked",
    [FORMATS["llama.cpp's"], {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}],
)
def test_ignore_eos_beside_a_schema_is_refused_by_name(config, asked):
    status, why = post(Triton(HELLO, config), {**CHAT, **asked, "ignore_eos": True})

    assert (status, json.loads(why)["error"]["param"]) == (400, "ignore_eos"), why


def test_null_is_absence_in_arguments_of_a_template_too():
    triton = Triton(HELLO)
    status, text = post(triton, {**CHAT, "chat_template_kwargs": {"enable_thinking": None}})

    assert status == 200, text
    assert "chat_template_kwargs" not in triton.asked[0][1]


@pytest.mark.parametrize(
    ("arguments", "rendered"), [({"a": 1}, {"a": 1}), (None, {}), ("", {}), ('{"a": "cut', '{"a": "cut'), ("{}", {})]
)
def test_arguments_of_earlier_calls_may_be_an_object_nothing_or_cut_off(arguments, rendered):
    """https://github.com/bytedance/deer-flow/issues/4445, https://github.com/vllm-project/vllm/pull/48922: whoever has
    such a call in a conversation sends it with every turn."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    result = {"role": "tool", "tool_call_id": "c", "content": "2"}
    triton = Triton(HELLO, WITH_TOOLS)
    status, text = post(triton, {**CHAT, "messages": [USER, {"role": "assistant", "tool_calls": [call]}, result]})

    assert status == 200, text
    assert json.loads(triton.asked[0][1]["messages"])[1]["tool_calls"][0]["function"]["arguments"] == rendered


@pytest.mark.parametrize("choice", ["any", {"type": "any"}, {"type": "required"}])
def test_any_tool_is_a_required_one(choice):
    """Mistral's API, and https://github.com/elastic/elasticsearch/pull/152427"""
    triton = Triton(HELLO, config_of((*OURS, "json_schema", "tools")))
    status, text = post(triton, {**CHAT, "tools": [F], "tool_choice": choice})

    assert (status, "json_schema" in triton.asked[0][1]) == (200, True), text


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_a_choice_may_be_written_as_an_object(choice):
    asked = []
    for form in (choice, {"type": choice}):
        triton = Triton(HELLO, WITH_TOOLS)
        status, text = post(triton, {**CHAT, "tools": [F], "tool_choice": form})
        assert status == 200, text
        asked.append(triton.asked[0][1])

    assert asked[0] | {"id": ""} == asked[1] | {"id": ""}


def test_a_top_p_of_zero_is_greedy():
    """OpenAI's reference allows it; vLLM and OpenVINO GenAI do not."""
    triton = Triton(HELLO)
    status, text = post(triton, {**CHAT, "top_p": 0, "temperature": 0.7})

    assert (status, triton.asked[0][1]["temperature"], "top_p" in triton.asked[0][1]) == (200, 0, False), text


def test_a_message_may_have_a_name_of_the_clients_own():
    """https://github.com/vllm-project/vllm/pull/10463: CodeCompanion's messages have an id."""
    triton = Triton(HELLO)
    status, text = post(triton, {**CHAT, "messages": [{**USER, "id": 1947269257}]})

    assert status == 200, text
    assert json.loads(triton.asked[0][1]["messages"]) == [USER]
