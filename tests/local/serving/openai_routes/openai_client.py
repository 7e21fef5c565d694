"""Asks a model with OpenAI's own package: an answer, and two turns with a tool, whole and streamed."""

import json
import sys

import openai

SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def whole(client, **asked):
    return client.chat.completions.create(**asked).choices[0].message


def streamed(client, **asked):
    with client.chat.completions.stream(**asked) as events:
        return events.get_final_completion().choices[0].message


def conversation(client, ask, **asked):
    """A call that is forced, its result, and what the model says then; the answer is sent back as it came."""
    turns = [{"role": "user", "content": "Hi"}]
    called = ask(client, messages=turns, tools=TOOLS, tool_choice="required", **asked)
    turns += [called.model_dump(), {"role": "tool", "content": "2", "tool_call_id": called.tool_calls[0].id}]
    second = ask(client, messages=turns, tools=TOOLS, **asked)
    return {"call": json.loads(called.tool_calls[0].function.arguments), "second turn": second.content}


def main(url, model, question):
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    asked = {"model": model, "max_tokens": 150}
    messages = [{"role": "user", "content": question}]
    found = {
        "texts": [ask(client, messages=messages, **asked).content for ask in (whole, streamed)],
        "conversations": [conversation(client, ask, **asked) for ask in (whole, streamed)],
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
