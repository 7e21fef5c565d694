"""OpenAI's own client, which keeps its connections to a model's Service while releases change."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import openai

TIMEOUT_S, PAUSE_S = 60.0, 1.0
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "sure": {"type": "boolean"}},
    "required": ["city", "sure"],
    "additionalProperties": False,
}
LOOK_UP = {"type": "function", "function": {"name": "look_up"}}
TOOLS = {"tools": [LOOK_UP | {"function": {"name": "look_up", "parameters": CITY}}], "tool_choice": LOOK_UP}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}}
# the demo's model was never taught JSON: at temperature 0 it writes blanks, which JSON allows without end
FORCED = {"max_tokens": 100, "temperature": 30, "seed": 3}
WHOLE = {"chat": {}, "tools": TOOLS | FORCED, "JSON Schema": SCHEMA | FORCED}
QUESTIONS = WHOLE | {f"{name}, streamed": asked | {"stream": True} for name, asked in WHOLE.items()}


class WrongAnswerError(Exception):
    """The server answered, but not what was asked for."""


@dataclass
class Count:
    """The requests that were made while something changed."""

    answered_by: Counter = field(default_factory=Counter)


class OpenAIClient:
    """One client, which retries nothing. An error, or a wrong answer, is a failed request."""

    def __init__(self, address, model, question):
        self.failures, self.counts = [], []
        self.releases = {}
        """The releases that answered at each moment."""
        self._model, self._question = model, question
        self._began = time.monotonic()
        self._client = openai.OpenAI(
            base_url=f"http://{address.host}:{address.ports['http']}/v1",
            api_key="none",
            max_retries=0,
            timeout=TIMEOUT_S,
        )

    def close(self):
        self._client.close()

    def ask_each(self, moment):
        """Ask every question once."""
        self.releases[moment] = {self._ask(name) for name in QUESTIONS}

    @contextmanager
    def asking(self):
        """Ask in turn, whole and streamed, until the block ends."""
        count, stop = Count(), threading.Event()
        thread = threading.Thread(target=self._ask_on, args=(count, stop), daemon=True)
        thread.start()
        try:
            yield count
        finally:
            stop.set()
            thread.join(len(QUESTIONS) * TIMEOUT_S)
            self.counts.append(count)

    def _ask_on(self, count, stop):
        while not stop.is_set():
            for name in QUESTIONS:
                if release := self._ask(name):
                    count.answered_by[release] += 1
                stop.wait(PAUSE_S)

    def _ask(self, name):
        """The release that answered; None when the request failed."""
        asked, streamed = QUESTIONS[name], "stream" in QUESTIONS[name]
        messages = [{"role": "user", "content": self._question.prompt}]
        try:
            answer = self._client.chat.completions.create(model=self._model, messages=messages, **asked)
            parts = list(answer) if streamed else [answer]
            self._check(name, [part.choices[0] for part in parts], streamed=streamed)
        except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
            since = time.monotonic() - self._began
            self.failures.append(f"after {since:.1f} s, {name}: {type(error).__name__}: {error}"[:300])
            return None
        return parts[-1].system_fingerprint

    def _check(self, name, choices, *, streamed):
        messages = [choice.delta if streamed else choice.message for choice in choices]
        text = "".join(message.content for message in messages if message.content)
        calls = [call.function for message in messages for call in message.tool_calls or ()]
        if name.startswith("tools"):
            text = ", ".join(f"{call.name}({call.arguments})" for call in calls)
            right = len(calls) == 1 and is_city(calls[0].arguments)
        else:
            right = is_city(text) if name.startswith("JSON") else self._question.accepts(text)
        ended = choices[-1].finish_reason
        if not right or ended != ("tool_calls" if calls else "stop") or (streamed and len(choices) == 1):
            raise WrongAnswerError(f"{text!r} in {len(choices)} events, which ended with {ended}")


def is_city(text):
    """Whether a text is a JSON document that obeys CITY."""
    found = json.loads(text)
    return set(found) == {"city", "sure"} and found["city"] in ("Paris", "Rome") and isinstance(found["sure"], bool)
