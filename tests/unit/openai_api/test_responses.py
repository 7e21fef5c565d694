"""/v1/responses by OpenAI's own package: whole and streamed, with tools, several turns, and errors in its own names."""

import asyncio
import json

import openai
import pytest
from aiohttp.test_utils import TestServer

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.serving.openai_api.application import Routes
from tests.unit.openai_api.test_routes import HELLO, WITH_TOOLS, Triton, answer_of

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
TOOLS = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]


def by_openai(triton, ask):
    """What a function of a client returns."""

    async def run():
        server = TestServer(Routes(triton, ["demo"], "demo-1").application())
        await server.start_server(auto_decompress=False)
        url = str(server.make_url("/v1"))
        async with server, openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return await ask(client.responses)

    return asyncio.run(run())


async def whole(responses, **asked):
    return await responses.create(model="demo", **asked)


async def streamed(responses, **asked):
    async with responses.stream(model="demo", **asked) as stream:
        return await stream.get_final_response()


async def events_of(responses):
    return [event async for event in await responses.create(model="demo", input="Hi", stream=True)]


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_text_is_answered_with_its_number_of_tokens(ask):
    triton = Triton(HELLO)
    answer = by_openai(triton, lambda responses: ask(responses, input="Hi", instructions="Be brief."))

    assert (answer.output_text, answer.status, answer.usage.total_tokens) == ("Hello!", "completed", 7)
    assert json.loads(triton.asked[0][1]["messages"]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_stream_has_the_events_of_the_api_in_their_order():
    events = by_openai(Triton(HELLO), events_of)

    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * 3,
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))


@pytest.mark.parametrize("ask", [whole, streamed])
def test_calls_and_their_results_come_back_in_further_turns(ask):
    triton, turns = Triton(config=WITH_TOOLS), [{"role": "user", "content": "Hi"}]

    async def conversation(responses):
        for text in (f"Look.{CALL}", "It is 21.", "Bye."):
            triton.answer = answer_of(text)
            answer = await ask(responses, input=turns, tools=TOOLS)
            turns.extend(item.model_dump() for item in answer.output)
            turns.extend(
                {"type": "function_call_output", "call_id": item.call_id, "output": "21"}
                for item in answer.output
                if item.type == "function_call"
            )

    by_openai(triton, conversation)
    _, said, result, last = json.loads(triton.asked[-1][1]["messages"])

    assert (said["content"], said["tool_calls"][0]["function"]) == ("Look.", {"name": "f", "arguments": {"a": 1}})
    assert (result["role"], result["content"], result["tool_call_id"]) == ("tool", "21", said["tool_calls"][0]["id"])
    assert last == {"role": "assistant", "content": "It is 21."}


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_was_cut_off_says_so(stream):
    triton = Triton([*answer_of("Hello")[:-1], [{"text_output": "", "finish_reason": "length"}]])

    async def ask(responses):
        answer = await responses.create(model="demo", input="Hi", stream=stream)
        return [event async for event in answer][-1].response if stream else answer

    answer = by_openai(triton, ask)

    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"store": True}, "store"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text.format"),
        ({"top_p": 0.5}, "top_p"),
    ],
)
def test_a_wrong_request_names_the_parameter_of_this_route(asked, param):
    with pytest.raises(openai.BadRequestError) as refused:
        by_openai(Triton(HELLO), lambda responses: whole(responses, **{"input": "Hi", **asked}))

    assert refused.value.param == param


def test_what_is_too_long_names_the_input():
    error = InputError("the prompt is 300 tokens long; this model takes at most 256. Shorten the text.")
    with pytest.raises(openai.BadRequestError) as refused:
        by_openai(Triton([error]), lambda responses: whole(responses, input="Hi"))

    assert (refused.value.param, refused.value.code) == ("input", "context_length_exceeded")


def test_a_stream_that_breaks_off_ends_with_an_error():
    *_, last = by_openai(Triton([HELLO[0], UnavailableError("gone")]), events_of)

    assert (last.type, last.code) == ("error", "unavailable")
