"""Asks a model with Anthropic's package: two turns with a tool, whole and streamed, and prints what came as JSON.

Runs in the environment `clients`.
"""

import json
import sys

import anthropic
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params

SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
TOOL = {"name": "f", "input_schema": SCHEMA}
FORCED = {"type": "tool", "name": "f", "disable_parallel_tool_use": True}


def whole(client, **asked):
    return client.messages.create(**asked)


def streamed(client, **asked):
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def conversation(client, ask, model):
    """A call that is forced, its result, and what the model says then; all blocks are sent back as they came."""
    common = {"model": model, "max_tokens": 150, "tools": [TOOL]}
    turns = [{"role": "user", "content": "Hi"}]
    called = ask(client, **common, messages=turns, tool_choice=FORCED)
    (call,) = [block for block in called.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "2", "cache_control": None}
    turns += [{"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    last = ask(client, **common, messages=turns, stop_sequences=["zebra"])
    return {"call": call.input, "stopped": called.stop_reason, "second turn": last.content[0].text}


def refused(client, **asked):
    try:
        client.messages.create(max_tokens=5, **asked)
    except anthropic.APIStatusError as error:
        return {"class": type(error).__name__, "type": error.type, "has id": bool(error.request_id), "text": str(error)}
    return {}


def main(url, model, question):
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked = {"model": model, "messages": [{"role": "user", "content": question}]}
    answers = [ask(client, **asked, max_tokens=60) for ask in (whole, streamed)]
    result = {
        "texts": [answer.content[0].text for answer in answers],
        "stopped": [answer.stop_reason for answer in answers],
        "tokens": [answer.usage.model_dump(include={"input_tokens", "output_tokens"}) for answer in answers],
        "counted": client.messages.count_tokens(**asked).input_tokens,
        "conversations": [conversation(client, ask, model) for ask in (whole, streamed)],
        "absent": refused(client, **{**asked, "model": "absent"}),
        "too long": refused(client, model=model, messages=[{"role": "user", "content": "word " * 5000}]),
        "image": refused(client, model=model, messages=[{"role": "user", "content": [{"type": "image"}]}]),
        "parameters": {
            kind.__module__.removeprefix("anthropic.types."): sorted(kind.__annotations__)
            for kind in (
                message_create_params.MessageCreateParamsBase,
                beta_params.MessageCreateParamsBase,
                message_count_tokens_params.MessageCountTokensParams,
            )
        },
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
