"""What Codex 0.171.0 and Claude Code 2.1.332 send: shortened from requests of both to a server of this project."""

import json

import pytest

from tests.unit.openai_api.test_routes import HELLO, WITH_TOOLS, Triton, answer_of, post

FUNCTION = {"type": "function", "description": "Runs.", "strict": False, "parameters": {"type": "object"}}
NAMESPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Tools for sub-agents.",
    "tools": [{**FUNCTION, "name": "close"}, {**FUNCTION, "name": "run"}],
}
TEXT = [{"type": "input_text", "text": "Hi"}]
CODEX = {
    "model": "demo",
    "input": [
        {"type": "message", "id": "msg_1", "role": "developer", "content": TEXT},
        {"type": "message", "id": "msg_2", "role": "user", "content": TEXT},
    ],
    "tools": [{**FUNCTION, "name": "run"}, NAMESPACE, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "1",
    "client_metadata": {"turn_id": "1"},
}
CACHED = {"cache_control": {"type": "ephemeral"}}
CLAUDE_CODE = {
    "model": "demo",
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>"}, {"type": "text", "text": "Hi"}]},
        {"role": "system", "content": [{"type": "text", "text": "# Environment", **CACHED}]},
    ],
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: 1"},
        {"type": "text", "text": "You are", **CACHED},
    ],
    "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}],
    "metadata": {"user_id": "{}"},
    "max_tokens": 32000,
    "thinking": {"type": "adaptive", "display": "omitted"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}


def call(name):
    return answer_of(f'<tool_call>{{"name": "{name}", "arguments": {{"a": 1}}}}</tool_call>')


def asked_of(path, body, answer=HELLO):
    triton = Triton(answer, WITH_TOOLS)
    status, text = post(triton, body, path)
    assert status == 200, text
    return triton.asked[0][1], json.loads(text)


def test_codex_is_answered_with_calls_of_functions_in_and_outside_a_namespace():
    asked, one = asked_of("/v1/responses", CODEX, call("agents__run"))
    _, other = asked_of("/v1/responses", CODEX, call("run"))

    offered = [tool["function"]["name"] for tool in json.loads(asked["tools"])]
    assert offered == ["run", "agents__close", "agents__run"]
    assert [tool["type"] for tool in one["tools"]] == ["function", "namespace"]
    assert (one["output"][0]["namespace"], one["output"][0]["name"]) == ("agents", "run")
    assert ("namespace" in other["output"][0], other["output"][0]["name"]) == (False, "run")


def test_a_call_of_a_namespace_comes_back_under_the_name_that_the_model_gave_it():
    _, answer = asked_of("/v1/responses", CODEX, call("agents__run"))
    result = {"type": "function_call_output", "call_id": answer["output"][0]["call_id"], "output": "done"}
    asked, _ = asked_of("/v1/responses", {**CODEX, "input": [*CODEX["input"], *answer["output"], result]})
    *_, said, _ = json.loads(asked["messages"])

    assert said["tool_calls"][0]["function"] == {"name": "agents__run", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice"),
        ({"tools": [*CODEX["tools"], {"type": "custom", "name": "patch"}]}, "tools[2].type"),
        ({"tools": [{**NAMESPACE, "tools": [{"type": "custom", "name": "patch"}]}]}, "tools[0].tools[0].type"),
    ],
)
def test_a_tool_that_cannot_be_called_is_refused_where_it_is_alone_chosen_or_the_clients(changed, param):
    status, text = post(Triton(HELLO, WITH_TOOLS), {**CODEX, **changed}, "/v1/responses")

    assert (status, json.loads(text)["error"]["param"]) == (400, param)


def test_claude_code_is_answered_and_its_text_reaches_the_model():
    asked, answer = asked_of("/v1/messages", CLAUDE_CODE)

    assert answer["content"] == [{"type": "text", "text": "Hello!"}]
    assert [each["role"] for each in json.loads(asked["messages"])] == ["system", "user", "system"]


@pytest.mark.parametrize(("display", "kinds"), [("summarized", ["thinking", "text"]), ("omitted", ["text"])])
def test_thoughts_are_shown_unless_they_are_to_be_omitted(display, kinds):
    thoughtful = [[{"text_output": "", "reasoning_content": "Hm."}], *HELLO]
    _, answer = asked_of(
        "/v1/messages", {**CLAUDE_CODE, "thinking": {"type": "adaptive", "display": display}}, thoughtful
    )

    assert [block["type"] for block in answer["content"]] == kinds


def test_removing_thoughts_of_earlier_turns_is_refused():
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}]}
    status, text = post(Triton(HELLO, WITH_TOOLS), {**CLAUDE_CODE, "context_management": edits}, "/v1/messages")

    assert (status, "context_management" in text) == (400, True)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_names_of_functions_have_up_to_128_characters(path):
    """Names of MCP servers' tools are long: https://docs.anthropic.com/en/api/messages, tools"""
    of = {"/v1/messages": (CLAUDE_CODE, {"input_schema": {}}), "/v1/responses": (CODEX, {"type": "function"})}[path]
    told = [
        post(Triton(HELLO, WITH_TOOLS), {**of[0], "tools": [{"name": "n" * length, **of[1]}]}, path)[0]
        for length in (128, 129)
    ]

    assert told == [200, 400]
