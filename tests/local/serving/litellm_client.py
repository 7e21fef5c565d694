"""Asks a model with LiteLLM, whole and streamed, and prints what came as JSON. Runs in the environment `clients`."""

import json
import sys

import litellm


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
    again = litellm.completion(
        **{**common, "messages": [*common["messages"], whole.choices[0].message.model_dump(), *common["messages"]]}
    )
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
        "second turn": again.choices[0].message.content,
        "too long": too_long,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
