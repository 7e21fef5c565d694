"""Runs agents of Pydantic AI over its three models: answers, second turns and typed output. Runs in `clients`."""

import asyncio
import json
import sys
from typing import Literal

import pydantic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.output import NativeOutput, ToolOutput
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class City(pydantic.BaseModel):
    a: Literal[1, 2]


async def whole(agent, question, **more):
    return (await agent.run(question, **more)).output


async def streamed(agent, question, **more):
    async with agent.run_stream(question, **more) as result:
        return await result.get_output()


async def asked(model, question, outputs):
    """What agents of a model say, each whole and streamed."""
    settings = {"max_tokens": 150}
    plain = Agent(model, model_settings=settings)
    typed = [Agent(model, output_type=kind(City), model_settings=settings) for kind in outputs]
    first = await plain.run(question)
    again = await plain.run("Hi", message_history=first.all_messages())
    return {
        "texts": [await run(plain, question) for run in (whole, streamed)],
        "second turn": again.output,
        "objects": [(await run(agent, "Hi")).a for agent in typed for run in (whole, streamed)],
    }


async def main(url, model, question):
    openai, anthropic = (
        OpenAIProvider(base_url=f"{url}/v1", api_key="none"),
        AnthropicProvider(base_url=url, api_key="none"),
    )
    models = {
        "chat": (OpenAIChatModel(model, provider=openai), (ToolOutput, NativeOutput)),
        "responses": (OpenAIResponsesModel(model, provider=openai), (ToolOutput, NativeOutput)),
        "messages": (
            AnthropicModel(model, provider=anthropic),
            (ToolOutput,),
        ),  # schemas are for Anthropic's own models
    }
    print(json.dumps({name: await asked(each, question, outputs) for name, (each, outputs) in models.items()}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
