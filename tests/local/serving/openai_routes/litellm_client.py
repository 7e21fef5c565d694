"""Asks a model with LiteLLM, whole and streamed, and prints what came as JSON. Runs in the environment `clients`."""

import json
import sys

import litellm

SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]


def streamed(**asked):
    return litellm.stream_chunk_builder(list(litellm.completion(**asked, stream=True)))


def conversation(ask, **asked):
    """A call that is forced, its result, and what the model says then; the answer is sent back as it came."""
    turns = [{"role": "user", "content": "Hi"}]
    called = ask(messages=turns, tools=TOOLS, tool_choice="required", **asked).choices[0].message
    (call,) = called.tool_calls
    turns += [called.model_dump(), {"role": "tool", "content": "2", "tool_call_id": call.id}]
    second = ask(messages=turns, tools=TOOLS, **asked).choices[0].message
    return {"call": json.loads(call.function.arguments), "second turn": second.content}


def main(url, model, question):
    server = {"api_base": f"{url}/v1", "api_key": "none"}
    common = {**server, "model": f"openai/{model}", "messages": [{"role": "user", "content": question}]}
    whole = litellm.completion(**common)
    chunks = list(litellm.completion(**common, stream=True, stream_options={"include_usage": True}))
    plain = litellm.text_completion(**server, model=f"text-completion-openai/{model}", prompt=question)
    try:
        litellm.completion(**{**common, "model": "openai/absent"})
        refused = ""
    except litellm.NotFoundError as error:
        refused = str(error)
    asked = {**server, "model": f"openai/{model}", "max_tokens": 150}
    try:
        litellm.completion(**{**common, "messages": [{"role": "user", "content": "word " * 5000}]})
        too_long = ""
    except litellm.ContextWindowExceededError as error:
        too_long = str(error)
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    usages = [chunk.usage.model_dump() for chunk in chunks if getattr(chunk, "usage", None)]
    result = {
        "whole": whole.choices[0].message.content,
        "tokens": whole.usage.completion_tokens,
        "streamed": "".join(texts),
        "pieces": sum(bool(text) for text in texts),
        "streamed tokens": usages[-1]["completion_tokens"],
        "plain tokens": plain.usage.completion_tokens,
        "refused": refused,
        "conversations": [conversation(ask, **asked) for ask in (litellm.completion, streamed)],
        "too long": too_long,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
