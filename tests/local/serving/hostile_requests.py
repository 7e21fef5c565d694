"""Requests as a stranger may write them: of the grammar that the routes read, and beyond each of its bounds.

Bodies are texts, for a JSON library would not write half of them.
"""

import json
import random
from dataclasses import dataclass

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
GENERATE, STREAM = "/v2/models/demo/generate", "/v2/models/demo/generate_stream"
QUESTION = "What is the capital of France?"
HUGE = "1" + "0" * 400
NUMBERS = ["0", "-1", "1", "1.5", "2e9", "1e308", "1e999", "-1e-400", "NaN", "Infinity", "-Infinity", HUGE, f"-{HUGE}"]
NUMBERS += [str(2**53), str(2**63), str(2**64 + 1), "0." + "3" * 500, "9" * 5000]
TEXTS = [
    '""',
    '"a"',
    r'"\\ud800"',
    r'"\\udc00x"',
    r'"\\u0000"',
    r'"\\ud83d\\ude00"',
    '"\u202e\u001b[2J"',
    '"{{ 7*7 }}"',
]
TEXTS += ['"%s"' % ("x" * size) for size in (100, 5_000, 200_000)]
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
]
MOST_BYTES = 17 << 20
"""Somewhat more than the limit."""


@dataclass(frozen=True)
class Hostile:
    """One request."""

    path: str
    body: bytes


class Stranger:
    """Writes requests, always the same ones for a seed."""

    def __init__(self, seed):
        self._random = random.Random(seed)  # noqa: S311 - a seed repeats them

    def request(self):
        """A request that is right but for what was done to it."""
        path = self._random.choice([CHAT, CHAT, CHAT, COMPLETION, GENERATE, STREAM])
        members = self._base(path)
        for _ in range(self._random.choice([0, 1, 1, 2, 4])):
            name, value = self._random.choice([self._schema_member, self._tool_member, self._turns, self._any_member])(
                path
            )
            members[name] = value
        text = "{{{}}}".format(", ".join(f"{json.dumps(name)}: {value}" for name, value in members.items()))
        if self._random.random() < 0.05:
            text = text[: self._random.randrange(len(text))]
        body = text.encode("utf-8", "surrogatepass")[:MOST_BYTES]
        return Hostile(path, body if self._random.random() > 0.02 else body[:-1] + b"\xff")

    def _base(self, path):
        tokens = str(self._random.randint(1, 12))
        if path in (GENERATE, STREAM):
            return {"text_input": json.dumps(QUESTION), "max_tokens": tokens}
        prompt = {"messages": json.dumps([{"role": "user", "content": QUESTION}])} if path == CHAT else {}
        prompt = prompt or {"prompt": json.dumps(QUESTION)}
        stream = json.dumps(self._random.random() < 0.3)
        return {"model": '"demo"', **prompt, "max_tokens": tokens, "stream": stream}

    def _schema_member(self, path):
        schema = self._schema(self._random.choice([1, 2, 3, 30]))
        if path in (GENERATE, STREAM):
            return "json_schema", json.dumps(schema)
        return "response_format", '{{"type": "json_schema", "json_schema": {}}}'.format(
            self._random.choice([f'{{"name": "x", "schema": {schema}}}', f'{{"schema": {schema}}}', schema])
        )

    def _tool_member(self, path):
        if self._random.random() < 0.5:
            forced = '{"type": "function", "function": {"name": "f"}}'
            return "tool_choice", self._random.choice(['"required"', '"auto"', forced, self._any(2)])
        tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {self._schema(2)}}}}}'
        tools = f"[{self._random.choice([tool, f'{tool}, {tool}', self._any(3)])}]"
        return "tools", json.dumps(tools) if path in (GENERATE, STREAM) else tools

    def _turns(self, path):
        call = (
            f'{{"id": "c", "type": "function", "function": {{"name": "f", "arguments": {json.dumps(self._any(3))}}}}}'
        )
        turns = [
            f'{{"role": "user", "content": {self._text()}}}',
            f'{{"role": "assistant", "content": null, "tool_calls": [{call}]}}',
            f'{{"role": {self._text()}, "content": [{{"type": "text", "text": {self._text()}}}]}}',
            self._any(3),
        ]
        some = [self._random.choice(turns)] * self._random.choice([1, 2, 20, 300])
        messages = f"[{', '.join(some)}]"
        return "messages", json.dumps(messages) if path in (GENERATE, STREAM) else messages

    def _any_member(self, _path):
        name = self._random.choice(PARAMETERS)
        if name == "chat_template_kwargs" and self._random.random() < 0.5:
            return name, '{"n": 1000000000, "tools": "x"}'
        return name, self._any(self._random.choice([0, 1, 3]))

    def _text(self):
        return self._random.choice(TEXTS)

    def _any(self, depth):
        kind = self._random.randrange(6 if depth else 3)
        if kind == 0:
            return self._random.choice(NUMBERS)
        if kind == 1:
            return self._text()
        if kind == 2:
            return self._random.choice(["true", "false", "null"])
        if kind == 3 and self._random.random() < 0.1:
            levels = self._random.choice([40, 500, 20_000])
            return "[" * levels + "1" + "]" * levels
        if kind in (3, 4):
            return f"[{', '.join([self._any(depth - 1)] * self._random.choice([0, 1, 3, 300]))}]"
        names = [self._random.choice([*TEXTS[:5], '"type"', '"a"']) for _ in range(self._random.randint(0, 3))]
        return "{{{}}}".format(", ".join(f"{name}: {self._any(depth - 1)}" for name in names))

    def _schema(self, depth):
        chance = self._random.random()
        if depth <= 0 or chance < 0.1:
            return self._any(1) if chance < 0.05 else json.dumps({"type": self._random.choice(TYPES)})
        if chance < 0.2:
            return self._doubled_chain()
        if chance < 0.3:
            texts = [
                {"type": "string", "minLength": n, "maxLength": self._random.choice([8, 64, 256])} for n in range(8)
            ]
            return json.dumps({"anyOf": texts * self._random.choice([1, 4, 10])})
        if chance < 0.6:
            return self._typed(depth - 1)
        words = {self._random.choice(KEYWORDS): self._inner(depth - 1) for _ in range(self._random.randint(1, 4))}
        return "{{{}}}".format(", ".join(f"{json.dumps(word)}: {value}" for word, value in words.items()))

    def _inner(self, depth):
        return self._random.choice([self._schema, self._any])(min(depth, 3))

    def _typed(self, depth):
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
                f'{{"anyOf": [{inner}, {inner}]}}',
            ]
        )

    def _doubled_chain(self):
        levels, group = self._random.choice([3, 40, 200]), self._random.choice(["$defs", "definitions"])
        chain = {f"a{n}": {"anyOf": [{"$ref": f"#/{group}/a{n + 1}"}] * 2} for n in range(levels)}
        last = self._random.choice([{"type": "null"}, {"$ref": f"#/{group}/a0"}, 3])
        return json.dumps({"$ref": f"#/{group}/a0", group: {**chain, f"a{levels}": last}})
