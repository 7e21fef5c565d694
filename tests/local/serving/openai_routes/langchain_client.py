"""Asks a model with LangChain: two turns with a tool, whole and streamed. Runs in the environment `clients`."""

import functools
import json
import operator
import sys

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}


def whole(model, turns):
    return model.invoke(turns)


def streamed(model, turns):
    return functools.reduce(operator.add, model.stream(turns))


def conversation(model, ask):
    """A call that is forced, its result, and what the model says then; the answer is sent back as it came."""
    turns = [HumanMessage("Hi")]
    called = ask(model.bind_tools([TOOL], tool_choice="f"), turns)
    (call,) = called.tool_calls
    turns += [called, ToolMessage("2", tool_call_id=call["id"])]
    return {"call": call["args"], "second turn": ask(model.bind_tools([TOOL]), turns).text}


def main(url, model, question):
    results = {}
    for name, responses in (("chat", False), ("responses", True)):
        client = ChatOpenAI(
            base_url=f"{url}/v1",
            api_key="none",
            model=model,
            max_tokens=150,
            max_retries=0,
            use_responses_api=responses,
        )
        results[name] = {
            "texts": [ask(client, [HumanMessage(question)]).text for ask in (whole, streamed)],
            "conversations": [conversation(client, ask) for ask in (whole, streamed)],
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
