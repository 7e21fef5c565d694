"""Clients send back what they were answered: OpenAI's own package keeps a conversation through several turns."""

import asyncio
import json

import openai
import pytest
from aiohttp.test_utils import TestServer
from pydantic import BaseModel

from slipway.tasks.serving.openai_api.application import Routes
from slipway.tasks.serving.openai_api.http.errors import ApiError
from slipway.tasks.serving.openai_api.requests.openai import read_chat
from tests.unit.openai_api.test_routes import TOOLS, WITH_TOOLS, Triton, answer_of

QUESTION = {"role": "user", "content": "Hi"}
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
ANSWERS = ["Hello.", CALL, "It is 21."]
DUMPS = {
    "as it is": lambda message: message,
    "dumped": lambda message: message.model_dump(),
    "dumped as JSON": lambda message: json.loads(message.model_dump_json()),
    "without nulls": lambda message: message.model_dump(exclude_none=True),
    "to_dict": lambda message: message.to_dict(),
}


class City(BaseModel):
    name: str


async def created(client, **asked):
    return await client.chat.completions.create(model="demo", **asked)


async def streamed(client, **asked):
    async with client.chat.completions.stream(model="demo", **asked) as stream:
        return await stream.get_final_completion()


def conversation(ask, dump, answers, **parameters):
    """The messages that the model was asked with in each turn."""
    triton, asked = Triton(config=WITH_TOOLS), [QUESTION]

    async def run():
        server = TestServer(Routes(triton, ["demo"], "demo-1").application())
        await server.start_server(auto_decompress=False)
        url = str(server.make_url("/v1"))
        async with server, openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            for text in answers:
                triton.answer = answer_of(text)
                message = (await ask(client, messages=asked, **parameters)).choices[0].message
                results = [
                    {"role": "tool", "tool_call_id": call.id, "content": "21"} for call in message.tool_calls or ()
                ]
                asked.extend([dump(message), *results, QUESTION])

    asyncio.run(run())
    return [json.loads(inputs["messages"]) for _, inputs in triton.asked]


@pytest.mark.parametrize("ask", [created, streamed])
@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_openai_s_package_sends_back_its_answers_and_calls(ask, dump):
    # the package parses streamed calls of strict functions only
    tools = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True, "description": None}}]
    *_, last = conversation(ask, dump, ANSWERS, tools=tools)
    _, first_answer, _, call, result, _ = last

    assert (first_answer["role"], first_answer["content"]) == ("assistant", "Hello.")
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # the package warns about its own field
@pytest.mark.parametrize("dump", DUMPS.values(), ids=DUMPS)
def test_answers_that_openai_s_package_parsed_are_taken_back(dump):
    async def parsed(client, **asked):
        return await client.chat.completions.parse(model="demo", response_format=City, **asked)

    _, last = conversation(parsed, dump, ['{"name": "Rome"}'] * 2)

    assert last[1] == {"role": "assistant", "content": '{"name": "Rome"}'}


LITELLM = {
    "content": "Hello.",
    "role": "assistant",
    "tool_calls": None,
    "function_call": None,
    "audio": None,
    "images": [],
    "thinking_blocks": [],
    "reasoning_items": [],
    "annotations": [],
    "provider_specific_fields": {"refusal": None},
}
"""Fields of litellm 1.106.2, types/utils.py, Message."""


def read(message):
    request = read_chat(json.dumps({"model": "demo", "messages": [QUESTION, message]}).encode())
    return request.messages[1].plain()


@pytest.mark.parametrize(
    ("message", "content", "reasoning"),
    [
        (LITELLM, "Hello.", None),
        ({"role": "assistant", "content": None, "refusal": "I will not."}, "I will not.", None),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "No.", None),
        ({"role": "assistant", "content": "4", "reasoning_content": "2 + 2"}, "4", "2 + 2"),
        ({"role": "assistant", "content": "4", "reasoning": "2 + 2", "reasoning_content": "2 + 2"}, "4", "2 + 2"),
        ({"role": "assistant", "content": "4", "reasoning_content": ""}, "4", None),
    ],
)
def test_an_answer_is_read_as_what_it_says(message, content, reasoning):
    plain = read(message)

    assert (plain["content"], plain.get("reasoning_content")) == (content, reasoning)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("annotations", [{"type": "url_citation", "url_citation": {}}]),
        ("audio", {"id": "audio_1"}),
        ("function_call", {"name": "f", "arguments": "{}"}),
        ("images", [{"type": "image_url"}]),
        ("zebra", ""),
    ],
)
def test_what_an_answer_holds_besides_text_is_refused_at_its_place(field, value):
    with pytest.raises(ApiError) as refused:
        read({"role": "assistant", "content": "Hello.", field: value})

    assert refused.value.param == f"messages[1].{field}"


@pytest.mark.parametrize(
    "absent",
    [
        *({name: None} for name in ("stream", "stream_options", "tools", "stop", "seed", "zebra")),
        {"stream": True, "stream_options": {"include_usage": None, "continuous_usage_stats": None}},
        {"tools": [{"type": "function", "function": {"name": "f", "description": None, "parameters": None}}]},
        {"response_format": {"type": "text", "json_schema": None}},
    ],
)
def test_null_is_absence_everywhere(absent):
    assert read_chat(json.dumps({"model": "demo", "messages": [QUESTION], **absent}).encode()).model == "demo"
