"""What OpenAI's own client asks a model's Service while releases change, and the page that shows the answers."""

import json
import textwrap
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import openai

from tests.support.goldens import UPDATE, are_updated
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "openai.md"
HEADING, NEXT_HEADING = "## A client during releases\n", "\n## "
WIDTH, TIMEOUT_S = 124, 60.0
PAUSE_S = 0.5
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
INTRODUCTION = f"""
The client of package `openai` {openai.__version__}, with `max_retries=0`, kept its connections to the laptop's stack while a release
was promoted and then taken back. A test writes this transcript (tests/local/chain/test_releases.py). The client asked these
questions, whole and with `"stream": true`. The demo's model was never taught JSON; the high temperature keeps it from writing
blanks until `max_tokens`.
"""
CONNECTIONS = """
A connection is kept from one whole answer to the next. After most streams the package closes it, because it stops reading at
`[DONE]`, before the response has ended.
"""


class WrongAnswerError(Exception):
    """The server answered, but not what was asked for."""


@dataclass
class Count:
    """The requests that were made while something changed."""

    name: str
    answered_by: Counter = field(default_factory=Counter)
    streamed: int = 0
    failed: int = 0
    connections: int = 0
    seconds: float = 0.0


class Transcript:
    """One client, which retries nothing. An error, or a wrong answer, is a failed request."""

    def __init__(self, address, model, question):
        self.failures, self.counts, self.requests = [], [], 0
        self._model, self._question = model, question
        self._moments, self._lines, self._connections = {}, {}, set()
        self._sent, self._began = threading.local(), time.monotonic()
        self._client = openai.OpenAI(
            base_url=f"http://{address.host}:{address.ports['http']}/v1",
            api_key="none",
            max_retries=0,
            timeout=TIMEOUT_S,
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [self._note]}),
        )

    def close(self):
        self._client.close()

    def ask_each(self, moment):
        """Ask every question once, and keep the answers for the page."""
        answers = {name: self._ask(name) for name in QUESTIONS}
        self._moments[moment] = {name: answer for name, answer in answers.items() if answer}

    @property
    def releases(self):
        """The releases that answered at each moment."""
        return {moment: {release for _, release in answers.values()} for moment, answers in self._moments.items()}

    @contextmanager
    def asking(self, name):
        """Ask in turn, whole and streamed, until the block ends."""
        count, stop = Count(name), threading.Event()
        began, connections = time.monotonic(), len(self._connections)
        thread = threading.Thread(target=self._ask_on, args=(count, stop), daemon=True)
        thread.start()
        try:
            yield count
        finally:
            stop.set()
            thread.join(len(QUESTIONS) * TIMEOUT_S)
            count.seconds = time.monotonic() - began
            count.connections = len(self._connections) - connections
            self.counts.append(count)

    def check_page(self):
        """The page shows what is asked; with SLIPWAY_UPDATE_GOLDENS=1 it is written from this transcript."""
        before, heading, rest = PAGE.read_text().partition(HEADING)
        shown, following, after = rest.partition(NEXT_HEADING)
        if are_updated():
            shown = self._page()
            PAGE.write_text(f"{before.rstrip()}\n\n{HEADING}{shown}{following}{after}")
        assert heading or are_updated(), f"{PAGE.name} has no section {HEADING.strip()!r}; {UPDATE}=1 writes it"
        for name in WHOLE:
            line = self._lines[name]
            assert "".join(line.split()) in "".join(shown.split()), f"{PAGE.name} lacks {line}; {UPDATE}=1 updates it"

    def _page(self):
        lines = ["```", *(line for name in WHOLE for line in wrapped(self._lines[name])), "```", ""]
        lines += ["Its answers, shortened, and the releases that gave them:", "", "```"]
        for answers, moments in self._moments_by_answers().items():
            lines += [f"{moment}: {', '.join(sorted(self.releases[moment]))}" for moment in moments]
            lines += [f"  {name:<22} {text}" for name, text in answers]
        lines += [
            "```",
            "",
            f"A thread of the same client asked these questions in turn, {PAUSE_S} s apart, during both changes:",
            "",
        ]
        lines += [
            "| during | s | requests | streamed | failed | new connections | answers by release |",
            "|" + "---|" * 7,
        ]
        for count in self.counts:
            releases = ", ".join(f"{number} {release}" for release, number in count.answered_by.items())
            numbers = (count.answered_by.total() + count.failed, count.streamed, count.failed, count.connections)
            row = (count.name, f"{count.seconds:.0f}", *numbers, releases)
            lines.append(f"| {' | '.join(map(str, row))} |")
        failed = f"{self.requests} requests over {len(self._connections)} connections, {len(self.failures)} failed."
        return "\n".join([INTRODUCTION, *lines, "", failed, CONNECTIONS.strip(), ""])

    def _moments_by_answers(self):
        """The moments at which each set of answers was given: releases of one model answer alike."""
        moments = {}
        for moment, answers in self._moments.items():
            moments.setdefault(tuple((name, text) for name, (text, _) in answers.items()), []).append(moment)
        return moments

    def _ask_on(self, count, stop):
        while not stop.is_set():
            for name, asked in QUESTIONS.items():
                answer = self._ask(name)
                count.streamed += "stream" in asked
                if answer:
                    count.answered_by[answer[1]] += 1
                else:
                    count.failed += 1
                stop.wait(PAUSE_S)

    def _ask(self, name):
        """The answer as the page shows it, and the release that gave it; None when the request failed."""
        self.requests += 1
        asked, streamed = QUESTIONS[name], "stream" in QUESTIONS[name]
        messages = [{"role": "user", "content": self._question.prompt}]
        try:
            answer = self._client.chat.completions.create(model=self._model, messages=messages, **asked)
            parts = list(answer) if streamed else [answer]
            text = self._checked(name, [part.choices[0] for part in parts], streamed=streamed)
        except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
            since = time.monotonic() - self._began
            self.failures.append(f"after {since:.1f} s, {name}: {type(error).__name__}: {error}"[:300])
            return None
        self._lines.setdefault(name, self._sent.line)
        return text, parts[-1].system_fingerprint

    def _checked(self, name, choices, *, streamed):
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
        return f"{' '.join(text.split())}{f' ({len(choices)} events)' if streamed else ''}"

    def _note(self, response):
        request = response.request
        self._sent.line = f"{request.method} {request.url.path} {json.dumps(json.loads(request.content))}"
        self._connections.add(response.extensions["network_stream"].get_extra_info("client_addr"))


def is_city(text):
    """Whether a text is a JSON document that obeys CITY."""
    found = json.loads(text)
    return set(found) == {"city", "sure"} and found["city"] in ("Paris", "Rome") and isinstance(found["sure"], bool)


def wrapped(line):
    return textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
