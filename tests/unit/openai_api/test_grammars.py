"""Schemas of requests are translated by other processes, which may be late or die: no other request waits for them."""

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from slipway.tasks.contracts.wire.json_schema import grammar_of
from slipway.tasks.serving.openai_api.application import Routes
from tests.unit.openai_api.models import OURS, VLLM, VLLM_OUTPUTS, config_of
from tests.unit.openai_api.test_routes import CHAT, HELLO, Triton

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GUIDED = config_of((*OURS, "json_schema", "tools"))
FORCED = {"type": "function", "function": {"name": "f"}}


def formatted(schema):
    return {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


def forced(parameters, choice):
    return {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}], **choice}


@asynccontextmanager
async def serving(triton):
    async with TestClient(TestServer(Routes(triton, ["demo"], "demo-1").application())) as client:
        yield client


async def post(client, body, path=CHATS):
    async with client.post(path, json=body) as response:
        return response.status, await response.json()


def translator():
    """The process that translates."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # others end meanwhile
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if parent == str(os.getpid()) and b"grammar_program" in (process / "cmdline").read_bytes():
                return int(process.name)
    raise LookupError("no process translates")


@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_no_request_waits_for_the_schema_of_another(known):
    """While the process that translates is stopped, only a schema that it has not seen has no answer."""

    async def run():
        async with serving(Triton(HELLO, GUIDED)) as client:
            assert (await post(client, formatted({"type": "null"})))[0] == 200
            stopped, ended = translator(), []
            os.kill(stopped, signal.SIGSTOP)
            try:
                hostile = asyncio.ensure_future(post(client, formatted({"type": "string", "format": "uri"})))
                hostile.add_done_callback(lambda _: ended.append("hostile"))
                status, _ = await post(client, formatted({"type": "null"}) if known else CHAT)
                ended.append(status)
            finally:
                os.kill(stopped, signal.SIGCONT)
            await hostile
            return ended

    assert asyncio.run(run()) == [200, "hostile"]


def test_a_schema_that_ends_its_process_is_refused_and_the_next_one_is_translated():
    async def run():
        async with serving(Triton(HELLO, GUIDED)) as client:
            await post(client, formatted({"type": "null"}))
            os.kill(translator(), signal.SIGKILL)
            return await post(client, formatted({"type": "boolean"})), await post(
                client, formatted({"type": "boolean"})
            )

    (status, refused), (next_status, _) = asyncio.run(run())

    assert (status, refused["error"]["param"], next_status) == (400, "response_format", 200)
    assert "ended the process" in refused["error"]["message"]


UNENFORCED = [{"type": "zebra"}, {"type": "string", "pattern": "(["}, {"$ref": "#/$defs/a"}, {"oneOf": []}, {"x": 1}]
ODD = [{"definitions": None}, {"$defs": 3}, {"$defs": [1]}, {"type": "zebra"}, {"$ref": "#/$defs/a"}]
CHOICES = [{"tool_choice": "required"}, {"tool_choice": FORCED}]


def test_a_schema_that_cannot_be_enforced_is_refused_by_its_parameter():
    formats = [formatted(schema) for schema in UNENFORCED]
    completions = [{"model": "demo", "prompt": "Once", "response_format": each["response_format"]} for each in formats]
    asked = [
        *((CHATS, body, "response_format") for body in formats),
        *((COMPLETIONS, body, "response_format") for body in completions),
        *((CHATS, forced(parameters, choice), "tools") for parameters in ODD for choice in CHOICES),
    ]

    async def run():
        async with serving(Triton(HELLO, GUIDED)) as client:
            return [(*await post(client, body, path), param) for path, body, param in asked]

    for status, body, param in asyncio.run(run()):
        assert (status, body["error"]["param"], body["error"]["code"]) == (400, param, "invalid_json_schema")


def test_a_model_of_vllm_gets_the_grammar_as_text_within_text():
    triton = Triton(HELLO, config_of(VLLM, VLLM_OUTPUTS))
    body = {"model": "demo", "prompt": "Once", "response_format": formatted({"type": "boolean"})["response_format"]}

    async def run():
        async with serving(triton) as client:
            await post(client, body, COMPLETIONS)

    asyncio.run(run())
    ((_, inputs),) = triton.asked

    sampling = json.loads(inputs["sampling_parameters"])
    assert json.loads(sampling["structured_outputs"]) == {"grammar": grammar_of('{"type": "boolean"}')}
