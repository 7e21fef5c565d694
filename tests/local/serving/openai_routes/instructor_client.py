"""Asks a model for objects with Instructor, as a call and as JSON. Runs in the environment `clients`."""

import json
import sys
from typing import Literal

import instructor
import openai
from pydantic import BaseModel


class City(BaseModel):
    a: Literal[1, 2]


def main(url, model, question):
    found = {}
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        client = instructor.from_openai(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode)
        asked = {"model": model, "max_tokens": 150, "messages": [{"role": "user", "content": "Hi"}], "max_retries": 0}
        whole = client.chat.completions.create(**asked, response_model=City)
        streamed = list(client.chat.completions.create_partial(**asked, response_model=City))[-1]
        found[mode.value] = [whole.a, streamed.a]
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
