"""Runs an agent of OpenAI's Agents SDK: a tool that must be called, and an answer. Runs in the environment `clients`."""

import asyncio
import json
import sys

import agents
import openai

CALLED = []


@agents.function_tool
def f(a: bool) -> str:
    CALLED.append(a)
    return "2"


async def whole(agent, question):
    return await agents.Runner.run(agent, question)


async def streamed(agent, question):
    result = agents.Runner.run_streamed(agent, question)
    async for _ in result.stream_events():
        pass
    return result


async def answers(agent, question):
    """What the agent says, whole and streamed, and how often the tool was called."""
    CALLED.clear()
    texts = [(await run(agent, question)).final_output for run in (whole, streamed)]
    return {"texts": texts, "calls": len(CALLED)}


async def main(url, model, question):
    agents.set_tracing_disabled(disabled=True)
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    results = {}
    for name, kind in (("chat", agents.OpenAIChatCompletionsModel), ("responses", agents.OpenAIResponsesModel)):
        served = kind(model, client)
        plain = agents.Agent("plain", model=served, model_settings=agents.ModelSettings(max_tokens=150))
        forced = agents.ModelSettings(max_tokens=150, tool_choice="required")
        calling = agents.Agent("calling", model=served, model_settings=forced, tools=[f])
        results[name] = {"plain": await answers(plain, question), "with a tool": await answers(calling, "Hi")}
    print(json.dumps(results))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
