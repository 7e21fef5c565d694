"""Requests, each of which once stopped a server or kept it busy for a long time: ours, or another one in public."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.serving.strangers import CHAT, COMPLETION, HUGE, QUESTION, Manner, Request

ANSWERED, BAD = frozenset({200}), frozenset({400})
ANSWERED_OR_BAD = frozenset({200, 400})
TOO_LARGE = frozenset({413, 0})
"""The front closes the connection as it refuses, which its client may notice before the answer."""


@dataclass(frozen=True)
class Attack:
    """A request to a model of a given name, and the statuses that are right."""

    name: str
    request: Callable[[str], Request]
    expected: frozenset[int] = BAD
    report: str = ""
    """Address of the report about another server; empty where it was ours."""
    times: int = 1
    """How often it is sent, one after the other."""


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
    Attack("schema of 2^40 paths in a chat", formatted(doubled_chain(40)), ANSWERED_OR_BAD),
    Attack("schema of 2^60 paths to generate", generate(json_schema=doubled_chain(60)), ANSWERED_OR_BAD),
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


def completion(**members: object) -> Callable[[str], Request]:
    """A completion without a chat template."""
    return lambda model: Request(COMPLETION, json.dumps({"model": model, "max_tokens": 8, **members}).encode())


def patterned(pattern: str) -> Callable[[str], Request]:
    """A chat whose answer is to obey a regular expression."""
    return formatted(json.dumps({"type": "string", "pattern": pattern}))


def called(parameters: object) -> Callable[[str], Request]:
    """A chat that must call a function of such parameters."""
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": parameters}}
    return chat(tools=[tool], tool_choice="required", max_tokens=16)


def tensors(*further: object, head: bytes = b"", text: object = QUESTION) -> Callable[[str], Request]:
    """A request to Triton's route for tensors."""
    given = [
        {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": [text]},
        {"name": "max_tokens", "shape": [1], "datatype": "INT32", "data": [3]},
    ]
    body = json.dumps({"inputs": [*given, *further]}).encode()
    return lambda model: Request(f"/v2/models/{model}_whole_answer/infer", body, (head,) if head else ())


def in_manner(request: Callable[[str], Request], manner: Manner) -> Callable[[str], Request]:
    """The same, sent in another manner."""
    return lambda model: replace(request(model), manner=manner)


LEAP_DAY = r"^((\d\d[2468][048]|\d\d[13579][26]|\d\d0[48])-02-29|\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))$"
ANY_OR_NULL = {"anyOf": [{"type": "integer", "exclusiveMinimum": 0, "maximum": 2**53 - 1}, {"type": "null"}]}
VLLM, SGLANG, LLAMA = (
    f"https://github.com/{each}" for each in ("vllm-project/vllm", "sgl-project/sglang", "ggml-org/llama.cpp")
)
TRITON, TGI = (
    "https://github.com/triton-inference-server/server",
    "https://github.com/huggingface/text-generation-inference",
)
REPORTED = (
    Attack("a pattern that begins with NUL", patterned("\0a"), ANSWERED_OR_BAD, f"{SGLANG}/issues/35533"),
    Attack(
        "a pattern that takes exponential time to match", patterned("^(a+)+$"), ANSWERED_OR_BAD, f"{SGLANG}/pull/28203"
    ),
    Attack("an empty pattern", patterned(""), ANSWERED_OR_BAD, f"{SGLANG}/issues/276"),
    Attack("a pattern that does not end", patterned("[a-"), BAD, f"{VLLM}/issues/17313"),
    Attack("a pattern that begins with a quantifier", patterned("^{2}times$"), BAD, f"{LLAMA}/pull/22606"),
    Attack(
        "a pattern of 10,000 groups in each other", patterned("(" * 10**4 + ")" * 10**4), BAD, f"{LLAMA}/pull/22606"
    ),
    Attack(
        "a pattern of leap days in a tool",
        called({"type": "object", "properties": {"a": {"type": "string", "pattern": LEAP_DAY}}}),
        ANSWERED_OR_BAD,
        f"{LLAMA}/issues/15640",
    ),
    Attack(
        "an optional integer in a tool",
        called({"type": "object", "additionalProperties": False, "properties": {"a": ANY_OR_NULL}}),
        ANSWERED_OR_BAD,
        "https://github.com/ikawrakow/ik_llama.cpp/issues/1484",
    ),
    Attack("top_logprobs of 1,000,000", chat(logprobs=True, top_logprobs=10**6), BAD, f"{SGLANG}/issues/40076"),
    Attack(
        "a bias for a token beyond the vocabulary",
        chat(logit_bias={"191222": -100, "99999": 5}),
        BAD,
        f"{VLLM}/pull/16529",
    ),
    Attack(
        "a prompt of a token beyond the vocabulary",
        completion(prompt=[5279552648203111001]),
        BAD,
        f"{VLLM}/issues/26797",
    ),
    Attack("an empty prompt", completion(prompt=""), ANSWERED_OR_BAD, f"{VLLM}/issues/10648"),
    Attack("100,000 texts to stop at", chat(stop=[f"{n}" for n in range(10**5)]), BAD, f"{VLLM}/pull/54721"),
    Attack(
        "a long prompt without a space, of three bytes a letter",
        completion(prompt="你" * 5000),
        BAD,
        f"{TGI}/issues/1795",
    ),
    Attack(
        "max_tokens of -1 in a stream",
        chat(max_tokens=-1, stream=True),
        ANSWERED,
        "https://github.com/BerriAI/litellm/issues/18689",
    ),
    Attack(
        "tensors as a form",
        tensors(head=b"Content-Type: application/x-www-form-urlencoded"),
        frozenset({200, 400, 415}),
        f"{TRITON}/issues/2643",
    ),
    Attack(
        "a tensor without elements",
        tensors({"name": "seed", "shape": [0], "datatype": "INT64", "data": []}),
        BAD,
        f"{TRITON}/issues/3613",
    ),
    Attack("a number where a tensor has a text", tensors(text=3), BAD, f"{TRITON}/issues/3119"),
    Attack(
        "300,000 chunks of one byte",
        in_manner(generate(text_input="x" * 300_000), Manner.CRUMBS),
        ANSWERED_OR_BAD | TOO_LARGE,
        "https://blog.trailofbits.com/2025/08/04/uncovering-memory-corruption-in-nvidia-triton-as-a-new-hire/",
    ),
    Attack(
        "streams whose clients leave at once",
        in_manner(chat(stream=True, max_tokens=64), Manner.LEFT),
        frozenset({0}),
        f"{LLAMA}/issues/27604",
        times=100,
    ),
    Attack(
        "Triton's streams whose clients leave at once",
        in_manner(
            lambda model: replace(generate(stream=True)(model), path=f"/v2/models/{model}/generate_stream"), Manner.LEFT
        ),
        frozenset({0}),
        f"{TRITON}/issues/6576",
        times=100,
    ),
    Attack(
        "TLS where HTTP is expected",
        lambda _model: Request("/", b"", method="\x16\x03\x01\x02"),
        frozenset({0, 400}),
        f"{VLLM}/issues/44486",
    ),
    Attack(
        "an upgrade to WebSocket",
        lambda model: replace(
            chat()(model), headers=(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
        ),
        frozenset({0, 200, 400, 403, 426}),
        "https://github.com/envoyproxy/envoy/issues/41068",
    ),
)
"""Requests that public reports blame for harm to other servers."""
