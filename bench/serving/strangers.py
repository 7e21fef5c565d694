"""Requests as a stranger may write them: of the grammar that the routes read, and beyond each of its bounds.

Bodies are texts and heads are bytes, for no library would write half of them.
"""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum, auto

CHAT, COMPLETION, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
QUESTION = "What is the capital of France?"
HUGE = "1" + "0" * 400
NUMBERS = ["0", "-1", "1", "1.5", "2e9", "1e308", "1e999", "-1e-400", "NaN", "Infinity", "-Infinity", HUGE, f"-{HUGE}"]
NUMBERS += [str(2**53), str(2**63), str(2**64 + 1), "0." + "3" * 500, "9" * 5000]
TEXTS = [
    '""',
    '"a"',
    r'"\ud800"',
    r'"\udc00x"',
    r'"\u0000"',
    r'"\ud83d\ude00"',
    r'"\\ud800"',
    '"\u202e\u001b[2J"',
    '"\ud800"',
    '"{{ 7*7 }}"',
    '"{% for i in range(10**9) %}x{% endfor %}"',
]
TEXTS += ['"%s"' % ("x" * size) for size in (100, 5_000, 200_000)]
LITERALS = ["true", "false", "null"]
KEYWORDS = [
    *("type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems", "maxItems"),
    *("minLength", "maxLength", "format", "minimum", "maximum", "enum", "const", "anyOf", "$ref", "pattern", "oneOf"),
    *("title", "default", "examples", "description", "$defs", "definitions", "not", "allOf", "$id", "multipleOf"),
]
TYPES = ["object", "array", "string", "integer", "number", "boolean", "null"]
PARAMETERS = [
    *("model", "messages", "prompt", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature"),
    *("top_p", "top_k", "min_tokens", "seed", "stop", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    *("logprobs", "top_logprobs", "response_format", "tools", "tool_choice", "chat_template_kwargs", "n", "logit_bias"),
    *("bad_words", "user", "metadata", "text_input", "json_schema", "stop_words", "apply_chat_template", "lora_name"),
    *("input", "instructions", "text", "reasoning", "include", "previous_response_id", "store", "max_output_tokens"),
    *("id", "inputs", "outputs", "parameters", "parallel_tool_calls", "best_of", "echo", "suffix", "guided_json"),
]
KWARGS = [
    '{"n": 1000000000, "tools": "x"}',
    '{"messages": 1, "add_generation_prompt": [], "bos_token": {}}',
    '{"__class__": "x", "self": 1, "range": 3}',
]
DATATYPES = ["BYTES", "INT32", "UINT64", "FP32", "BOOL", "FP16", "BF16", "X", ""]
SHAPES = ["[1]", "[]", "[0]", "[-1]", "[2]", "[1, 1]", f"[{2**62}, 4]", f"[{HUGE}]", '["1"]', "1", "[1.5]", "null"]
OUTPUTS = ["text_output", "finish_reason", "x", ""]
TRITON_PARAMETERS = [
    *("binary_data", "binary_data_size", "binary_data_output", "classification", "priority", "timeout", "headers"),
    *("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset", "triton_enable_empty_final_response"),
    *("sequence_id", "sequence_start", "sequence_end", r"classif\u0069cation"),
]
"""What Triton's HTTP server itself reads of a request, a tensor or an output (src/http_server.cc at e1db8a60)."""
LENGTHS = [0, 1, 4, 30, 2**31, 2**32 - 1]
"""What the first 4 bytes of a BYTES element give as its length."""
HEADERS = [
    *(b"Content-Encoding: " + name for name in (b"gzip", b"deflate", b"br", b"gzip, gzip", b"x")),
    *(b"Content-Length: " + value for value in (b"5", b"-1", b"0x10", b"99999999999999999999", b"")),
    *(b"Transfer-Encoding: " + value for value in (b"chunked", b"gzip, chunked", b"x", b"chunked, chunked")),
    *(b"Expect: " + value for value in (b"100-continue", b"x")),
    *(b"Content-Type: " + value for value in (b"text/plain", b"application/json; charset=utf-16", b"\xff", b"a/b;;=")),
    *(b"Inference-Header-Content-Length: " + value for value in (b"0", b"5", b"-1", b"99999999999999999999", b"x")),
    *(b"X-Envoy-" + line for line in (b"Upstream-Rq-Timeout-Ms: 1", b"Max-Retries: 99", b"Original-Path: /v2/logging")),
    *(b"Accept: " + value for value in (b"image/png", b"text/event-stream", b"*/*;q=\xff")),
    *(b"Connection: " + value for value in (b"Upgrade\r\nUpgrade: h2c", b"Upgrade\r\nUpgrade: websocket", b"x" * 3000)),
    *(b"X-Request-Id: " + value for value in (b"\xf0\x9f\x98\x80", b"a b", b"x" * 5000, b"")),
    *(b"Host: other", b"X-A: \x00", b"X-\xff: 1", b"X A: 1", b": 1", b" folded", b"X-A: " + b"x" * 70_000),
    *(
        b"Authorization: Bearer " + b"x" * 9000,
        b"Range: bytes=0-1",
        b"TE: trailers",
        b"traceparent: x",
        b"grpc-timeout: 1n",
    ),
    b"\r\n".join(b"X-%d: 1" % number for number in range(200)),
]
CHUNKS = [
    b"zz\r\n",
    b"-5\r\n",
    b"f" * 17 + b"\r\n",
    b"5;" + b"x" * 9000 + b"\r\nhello\r\n",
    b"0\r\nContent-Length: 3\r\n\r\n",
]
"""What may stand where a chunk begins."""
METHODS = ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "CONNECT", "PATCH", "post", "P\x00ST"]
LONG_BYTES = 1 << 20
"""A long list is as long as the smaller limits, so that most requests are read."""
MOST_BYTES = 17 << 20
"""Somewhat more than the largest limit; few requests are as long."""
MOST_CRUMBS = 300_000


class Manner(StrEnum):
    """How a request goes over its connection."""

    WHOLE = auto()
    CHUNKED = auto()
    CRUMBS = auto()
    """In chunks of one byte, or so many that there are no more than MOST_CRUMBS."""
    DAMAGED_CHUNKS = auto()
    HALF_CLOSED = auto()
    """The client says after the request that it sends no more."""
    CUT = auto()
    """It says so in the middle of the request."""
    LEFT = auto()
    """It leaves without reading the answer."""


@dataclass(frozen=True)
class Request:
    """One request; `headers` are further lines of its head."""

    path: str
    body: bytes
    headers: tuple[bytes, ...] = ()
    method: str = "POST"
    manner: Manner = Manner.WHOLE

    def __str__(self) -> str:
        shown = f"{self.method} {self.path} {self.manner} {self.headers!r:.200} {self.body[:400]!r}"
        return f"{shown} ({len(self.body)} bytes)"

    @property
    def is_well_formed(self) -> bool:
        """Whether HTTP itself has nothing against it, so that it must be answered, and with JSON."""
        return (
            self.method == "POST" and not self.headers and self.manner in (Manner.WHOLE, Manner.CHUNKED, Manner.CRUMBS)
        )

    def pieces(self) -> Iterator[bytes]:
        """What is sent, in order."""
        is_chunked = self.manner in (Manner.CHUNKED, Manner.CRUMBS, Manner.DAMAGED_CHUNKS)
        length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(self.body)
        first = b"%s %s HTTP/1.1" % (self.method.encode(), self.path.encode())
        lines = (first, b"Host: x", b"Content-Type: application/json", b"Connection: close", length, *self.headers)
        yield b"\r\n".join(lines) + b"\r\n\r\n"
        if not is_chunked:
            yield self.body if self.manner is not Manner.CUT else self.body[: len(self.body) // 2]
            return
        step = max(1, len(self.body) // (MOST_CRUMBS if self.manner is Manner.CRUMBS else 3))
        for begin in range(0, len(self.body), step):
            chunk = self.body[begin : begin + step]
            yield b"%x\r\n%s\r\n" % (len(chunk), chunk)
            if self.manner is Manner.DAMAGED_CHUNKS:
                yield CHUNKS[len(self.body) % len(CHUNKS)]
        yield b"0\r\n\r\n"


class Stranger:
    """Writes requests to a model, always the same ones for a seed."""

    def __init__(self, seed: str, model: str = "demo") -> None:
        self._random = random.Random(seed)  # noqa: S311 - a seed repeats them
        self._model = json.dumps(model)
        self._generate, self._stream = (f"/v2/models/{model}/{verb}" for verb in ("generate", "generate_stream"))
        self._infer = (f"/v2/models/{model}/infer", f"/v2/models/{model}_whole_answer/infer")
        self._routes = [CHAT, CHAT, CHAT, COMPLETION, RESPONSES, self._generate, self._stream, *self._infer]

    def ordinary(self) -> Request:
        """A request as anybody writes it."""
        path = self._random.choice([CHAT, COMPLETION, RESPONSES, self._generate, self._stream])
        return Request(path, _object(self._base(path)).encode())

    def request(self) -> Request:
        """A request that is right but for what was done to it."""
        path = self._random.choice(self._routes)
        if path in self._infer and self._chance(0.3):
            return self._binary(path)
        members = self._base(path)
        for _ in range(self._random.choice([0, 1, 1, 2, 4])):
            change = self._random.choice([self._schema_member, self._tool_member, self._turns, self._any_member])
            name, value = change(path)
            members[name] = value
        text = _object(members)
        if self._chance(0.05):
            text = text[: self._random.randrange(len(text))]
        body = text.encode("utf-8", "surrogatepass")[:MOST_BYTES]
        return self._sent(path, self._damaged(body))

    def _damaged(self, body: bytes) -> bytes:
        """The body, rarely in an encoding that is not UTF-8, or far too long."""
        if self._chance(0.003):
            return body.ljust(MOST_BYTES)
        if not self._chance(0.04):
            return body
        wide = body[:100_000].decode("utf-8", "replace")
        zeros, mark = bytes(len(body) % 1000), b"\xef\xbb\xbf"
        return self._random.choice([body[:-1] + b"\xff", mark + body, wide.encode("utf-16"), zeros, b"\x1f\x8b" + body])

    def _sent(self, path: str, body: bytes) -> Request:
        """The request, now and then with a head or in a manner that nobody expects."""
        if self._chance(0.1):
            return Request(path, body, tuple(self._random.choices(HEADERS, k=self._random.randint(1, 2))))
        if self._chance(0.2):
            return Request(path, body, manner=self._random.choice(list(Manner)))
        if self._chance(0.02):
            return Request(path, body, method=self._random.choice(METHODS))
        return Request(path, body)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _base(self, path: str) -> dict[str, str]:
        tokens, question = str(self._random.randint(1, 12)), json.dumps(QUESTION)
        if path in self._infer:
            return {"inputs": self._tensors()} | self._of_triton()
        if path in (self._generate, self._stream):
            return {"text_input": question, "max_tokens": tokens}
        members = {"model": self._model, "stream": json.dumps(self._chance(0.3))}
        if path == RESPONSES:
            return members | {"input": question, "max_output_tokens": str(max(16, int(tokens)))}
        prompt = {"messages": f'[{{"role": "user", "content": {question}}}]'} if path == CHAT else {"prompt": question}
        return members | prompt | {"max_tokens": tokens}

    def _of_triton(self) -> dict[str, str]:
        """Parameters of the request, and outputs with their own."""
        outputs = [
            f'{{"name": "{self._random.choice(OUTPUTS)}", "parameters": {self._parameters()}}}'
            for _ in range(self._random.choice([1, 1, 2]))
        ]
        members = {"parameters": self._parameters(), "outputs": f"[{', '.join(outputs)}]"}
        return {name: value for name, value in members.items() if self._chance(0.3)}

    def _parameters(self) -> str:
        names = self._random.choices(TRITON_PARAMETERS, k=self._random.choice([1, 1, 2]))
        values = [self._random.choice([self._any(1), "1", "true", '"a"']) for _ in names]
        return "{{{}}}".format(", ".join(f'"{name}": {value}' for name, value in zip(names, values, strict=True)))

    def _tensors(self) -> str:
        text = self._random.choice([json.dumps(QUESTION)] * 6 + [self._text(), self._any(2)])
        tensors = [self._tensor("text_input", "BYTES", text), self._tensor("max_tokens", "INT32", "3")]
        tensors += [
            self._tensor(self._random.choice(PARAMETERS), self._random.choice(DATATYPES), self._any(1))
            for _ in range(self._random.choice([0, 0, 1, 3]))
        ]
        return f"[{', '.join(tensors)}]"

    def _tensor(self, name: str, datatype: str, value: str) -> str:
        shape = "[1]"
        if self._chance(0.15):
            shape, datatype = self._random.choice(SHAPES), self._random.choice(DATATYPES)
        data = self._random.choice([f"[{value}]"] * 8 + [value, f"[[{value}]]", f"[{value}, {value}]", "[]"])
        further = self._random.choice(
            [""] * 8 + [f', "parameters": {self._any(2)}', f', "parameters": {self._parameters()}']
        )
        return f'{{"name": "{name}", "shape": {shape}, "datatype": "{datatype}", "data": {data}{further}}}'

    def _binary(self, path: str) -> Request:
        """Triton's binary form: a JSON of tensors with sizes, then their bytes."""
        text = QUESTION.encode() * self._random.choice([1, 1, 1, 3000])
        data = struct.pack("<I", self._random.choice([len(text)] * 3 + LENGTHS)) + text
        size = self._random.choice([len(data)] * 3 + [0, 1, -1, len(data) + 1, 2**31, 2**64])
        shape, tokens = self._random.choice(["[1]"] * 6 + SHAPES), self._tensor("max_tokens", "INT32", "3")
        sized = f'"shape": {shape}, "datatype": "BYTES", "parameters": {{"binary_data_size": {size}}}'
        head = _object({"inputs": f'[{{"name": "text_input", {sized}}}, {tokens}]'}).encode("utf-8", "surrogatepass")
        told = self._random.choice([len(head)] * 4 + [0, len(head) - 1, len(head) + 1, 2**31, -1])
        return Request(path, head + data, (b"Inference-Header-Content-Length: %d" % told,))

    def _schema_member(self, path: str) -> tuple[str, str]:
        schema = self._schema(self._random.choice([1, 2, 3, 30]))
        if path in (self._generate, self._stream):
            return "json_schema", json.dumps(schema)
        named = f'{{"name": "x", "schema": {schema}}}'
        if path == RESPONSES:
            format_ = f'{{"type": "json_schema", "name": "x", "schema": {schema}}}'
            return "text", f'{{"format": {self._random.choice([format_, named, schema])}}}'
        kind = self._random.choice([named, f'{{"schema": {schema}}}', schema])
        return "response_format", f'{{"type": "json_schema", "json_schema": {kind}}}'

    def _tool_member(self, path: str) -> tuple[str, str]:
        name = self._random.choice(['"f"'] * 10 + TEXTS)
        function = f'"name": {name}, "parameters": {self._schema(2)}'
        if self._chance(0.5):
            forced = '{"type": "function", "name": "f", "function": {"name": "f"}}'
            return "tool_choice", self._random.choice(['"required"', '"auto"', forced, self._any(2)])
        tool = f'{{"type": "function", {function}, "function": {{{function}}}}}'
        tools = f"[{self._random.choice([tool, f'{tool}, {tool}', _repeated(tool, 200), self._any(3)])}]"
        return "tools", json.dumps(tools) if path in (self._generate, self._stream) else tools

    def _turns(self, path: str) -> tuple[str, str]:
        called = f'{{"name": "f", "arguments": {self._random.choice([json.dumps(self._any(3)), self._any(2)])}}}'
        call = f'{{"id": "c", "type": "function", "function": {called}}}'
        turns = [
            f'{{"role": "user", "content": {self._text()}}}',
            f'{{"role": "assistant", "content": null, "tool_calls": [{call}]}}',
            f'{{"role": {self._text()}, "content": [{{"type": "text", "text": {self._text()}}}]}}',
            f'{{"type": "function_call", "call_id": "c", "name": "f", "arguments": {self._any(1)}}}',
            self._any(3),
        ]
        messages = f"[{_repeated(self._random.choice(turns), self._random.choice([1, 2, 20, 300, 200_000]))}]"
        if path in (self._generate, self._stream):
            return "messages", json.dumps(messages)
        return "input" if path == RESPONSES else "messages", messages

    def _any_member(self, _path: str) -> tuple[str, str]:
        name = self._random.choice(PARAMETERS)
        if name == "chat_template_kwargs" and self._chance(0.7):
            return name, self._random.choice(KWARGS)
        return name, self._any(self._random.choice([0, 1, 3]))

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _any(self, depth: int) -> str:
        if not depth or self._chance(0.5):
            return self._random.choice(self._random.choice([NUMBERS, TEXTS, LITERALS]))
        if self._chance(0.03):
            levels = self._random.choice([40, 500, 20_000])
            return "[" * levels + "1" + "]" * levels
        if self._chance(0.65):
            return f"[{_repeated(self._any(depth - 1), self._random.choice([0, 1, 3, 300]))}]"
        names = [self._random.choice([*TEXTS[:5], '"type"', '"a"']) for _ in range(self._random.randint(0, 3))]
        return "{{{}}}".format(", ".join(f"{name}: {self._any(depth - 1)}" for name in names))

    def _schema(self, depth: int) -> str:
        kinds = {self._leaf: 1, self._doubled_chain: 1, self._lengths: 1, self._typed: 3, self._words: 4}
        (kind,) = self._random.choices(list(kinds), list(kinds.values())) if depth > 0 else [self._leaf]
        return kind(depth - 1)

    def _leaf(self, _depth: int) -> str:
        return self._any(1) if self._chance(0.5) else json.dumps({"type": self._random.choice(TYPES)})

    def _lengths(self, _depth: int) -> str:
        texts = [{"type": "string", "minLength": n, "maxLength": self._random.choice([8, 64, 256])} for n in range(8)]
        return json.dumps({"anyOf": texts * self._random.choice([1, 4, 10])})

    def _words(self, depth: int) -> str:
        return _object({self._random.choice(KEYWORDS): self._inner(depth) for _ in range(self._random.randint(1, 4))})

    def _inner(self, depth: int) -> str:
        return self._random.choice([self._schema, self._any])(min(depth, 3))

    def _typed(self, depth: int) -> str:
        inner, bound = self._schema(depth), self._random.choice(["0", "3", "256", HUGE])
        return self._random.choice(
            [
                f'{{"type": "object", "properties": {{"a": {inner}}}, "required": ["a"], "title": {self._text()}}}',
                f'{{"type": "array", "items": {inner}, "maxItems": {bound}}}',
                f'{{"type": "string", "maxLength": {bound}, "default": {self._any(1)}}}',
                f'{{"type": "integer", "minimum": {self._random.choice(NUMBERS)}}}',
                f'{{"type": ["number", "null"], "maximum": {self._random.choice(NUMBERS)}}}',
                f'{{"enum": [{self._any(0)}, {self._any(0)}]}}',
                f'{{"const": {self._any(0)}}}',
                f'{{"anyOf": [{_repeated(inner, 2)}]}}',
            ]
        )

    def _doubled_chain(self, _depth: int) -> str:
        levels, group = self._random.choice([3, 40, 200]), self._random.choice(["$defs", "definitions"])
        chain = {f"a{n}": {"anyOf": [{"$ref": f"#/{group}/a{n + 1}"}] * 2} for n in range(levels)}
        last = self._random.choice([{"type": "null"}, {"$ref": f"#/{group}/a0"}, 3])
        return json.dumps({"$ref": f"#/{group}/a0", group: {**chain, f"a{levels}": last}})


def _object(members: dict[str, str]) -> str:
    """A JSON object of members whose values are written already."""
    return "{{{}}}".format(", ".join(f"{json.dumps(name)}: {value}" for name, value in members.items()))


def _repeated(value: str, count: int) -> str:
    """Members of a list, fewer where they would have more bytes than a long list."""
    return ", ".join([value] * min(count, max(1, LONG_BYTES // len(value))))
