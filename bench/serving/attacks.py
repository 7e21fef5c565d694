"""Requests, each of which once stopped a server or kept it busy for a long time."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from bench.serving.strangers import CHAT, HUGE, QUESTION, Request

BAD = frozenset({400})
OBEYED_OR_BAD = frozenset({200, 400})
TOO_LARGE = frozenset({413, 0})
"""The front closes the connection as it refuses, which its client may notice before the answer."""


@dataclass(frozen=True)
class Attack:
    """A request to a model of a given name, and the statuses that are right."""

    name: str
    request: Callable[[str], Request]
    expected: frozenset[int] = BAD


def chat(**members: object) -> Callable[[str], Request]:
    """A chat with further members, or others."""
    question = [{"role": "user", "content": QUESTION}]
    return lambda model: Request(CHAT, json.dumps({"model": model, "messages": question, **members}).encode())


def formatted(schema: str) -> Callable[[str], Request]:
    """A chat whose answer is to obey a schema that is written already."""
    return lambda model: Request(
        CHAT,
        (
            f'{{"model": {json.dumps(model)}, "messages": [{{"role": "user", "content": {json.dumps(QUESTION)}}}], '
            f'"response_format": {{"type": "json_schema", "json_schema": {{"name": "x", "schema": {schema}}}}}}}'
        ).encode(),
    )


def generate(**members: object) -> Callable[[str], Request]:
    """A request to Triton's own route."""
    body = json.dumps({"text_input": QUESTION, "max_tokens": 8, **members}).encode()
    return lambda model: Request(f"/v2/models/{model}/generate", body)


def administration(path: str, **members: object) -> Callable[[str], Request]:
    """What is for Triton's administrator."""
    return lambda _model: Request(path, json.dumps(members).encode())


def large_tensor(model: str) -> Request:
    """90 MB in one BYTES tensor."""
    tensor = '{"inputs": [{"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["%s"]}]}'
    return Request(f"/v2/models/{model}/infer", (tensor % ("x" * (90 << 20))).encode())


def doubled_chain(levels: int) -> str:
    """A schema of 2^levels paths, without a circle."""
    chain: dict[str, object] = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return json.dumps({"$ref": "#/$defs/a0", "$defs": {**chain, f"a{levels}": {"type": "null"}}})


LENGTHS = [{"type": "string", "minLength": n, "maxLength": 256} for n in range(80)]
TURN = {"role": "user", "content": "a"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "\\ud800"}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": 3, "properties": [1]}}}
ATTACKS = (
    Attack("schema of 2^40 paths in a chat", formatted(doubled_chain(40)), OBEYED_OR_BAD),
    Attack("schema of 2^60 paths to generate", generate(json_schema=doubled_chain(60)), OBEYED_OR_BAD),
    *(
        Attack(f"10^400 as {word} of a schema", formatted(f'{{"{word}": {value}}}'))
        for word, value in (("enum", f"[{HUGE}]"), ("const", HUGE), ("default", HUGE))
    ),
    Attack("half a surrogate pair as title of a schema to generate", generate(json_schema='{"title": "\\ud800"}')),
    Attack("90 MB as a BYTES tensor to infer", large_tensor, TOO_LARGE),
    Attack("20 MB of text to generate", generate(text_input="x" * (20 << 20)), TOO_LARGE),
    Attack("15 MB of prompt in a chat", chat(messages=[{**TURN, "content": "a " * (15 << 19)}]), TOO_LARGE | BAD),
    Attack("200,000 messages", chat(messages=[TURN] * 200_000), TOO_LARGE | BAD),
    Attack("4,096 messages", chat(messages=[TURN] * 4096)),
    Attack("anyOf of 80 strings of minLength i, maxLength 256", formatted(json.dumps({"anyOf": LENGTHS}))),
    Attack('"json_schema": 1', chat(response_format={"type": "json_schema", "json_schema": 1})),
    Attack('"definitions": null', formatted('{"definitions": null, "$ref": "#/definitions/a"}')),
    Attack("a forced tool of odd parameters", chat(tools=[TOOL], tool_choice="required")),
    Attack(
        "half a surrogate pair in a call's arguments",
        chat(messages=[TURN, {"role": "assistant", "content": None, "tool_calls": [CALL]}, TURN]),
    ),
    Attack(
        "chat_template_kwargs of 10^9", chat(chat_template_kwargs={"n": 10**9, "tools": "x"}), frozenset({200, 400})
    ),
    Attack("/v2/logging", administration("/v2/logging", log_verbose_level=1), frozenset({404})),
    Attack(
        "shared memory of another process",
        administration("/v2/systemsharedmemory/region/x/register", key="/x", offset=0, byte_size=8),
        frozenset({404}),
    ),
    Attack("loading a model", administration("/v2/repository/models/demo/load"), frozenset({404})),
)
