"""Clients that send requests to a live Service during releases, over new and over kept connections.

They retry nothing. If the server announces that it closes a connection (Connection: close, GOAWAY), the client's
library opens another; every error that reaches the client is a failed request.
"""

import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from slipway.tasks.adapters.triton.triton import TritonClient
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.serving.rendered.questions import request_of

PAUSE_S = 0.5
ANSWER_TIMEOUT_S = 30.0


class Client(Protocol):
    """One client of a model."""

    name: str
    """How it connects."""

    def ask(self) -> str:
        """The model's whole answer."""

    def close(self) -> None:
        """Close its connection."""


class FreshGrpc:
    """gRPC over a new connection for each request."""

    name = "gRPC, new connections"

    def __init__(self, model: str, host: str, ports: dict[str, int], question: SmokeQuestion) -> None:
        self._address, self._model, self._question = (host, ports), model, question

    def ask(self) -> str:
        """The model's whole answer."""
        return ask(self._model, *self._address, self._question)

    def close(self) -> None:
        """Do nothing: each request has its own connection."""


class KeptGrpc:
    """gRPC streams over one channel."""

    name = "gRPC streams, kept"

    def __init__(self, model: str, host: str, ports: dict[str, int], question: SmokeQuestion) -> None:
        self._model, self._question = model, question
        self._client = TritonClient(host, ports["http"], ports["grpc"])

    def ask(self) -> str:
        """The model's whole answer, in pieces."""
        request = request_of(self._question)
        return "".join(chunk.text for chunk in self._client.stream(self._model, request, ANSWER_TIMEOUT_S))

    def close(self) -> None:
        """Close the channel."""
        self._client.close()


class KeptHttp:
    """Whole answers over one HTTP connection. http.client notices a closed connection only when it uses it."""

    name, path = "HTTP, kept", "generate"

    def __init__(self, model: str, host: str, ports: dict[str, int], question: SmokeQuestion) -> None:
        self._url = f"/v2/models/{model}/{self.path}"
        request = request_of(question)
        self._body = json.dumps(
            {"text_input": request.prompt, "max_tokens": request.max_tokens, **request.sampling, **self._more()}
        )
        self._headers: dict[str, str] = {}
        self._connection = http.client.HTTPConnection(host, ports["http"], timeout=ANSWER_TIMEOUT_S)

    def ask(self) -> str:
        """The model's whole answer."""
        self._connection.request("POST", self._url, self._body, self._headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"{response.status} {body[:200]!r}")
        return self._text(body)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _more(self) -> dict[str, bool]:
        return {}

    def _text(self, body: bytes) -> str:
        return str(json.loads(body)["text_output"])


class FreshHttp(KeptHttp):
    """Whole answers, each over a new HTTP connection."""

    name = "HTTP, new connections"

    def ask(self) -> str:
        """The model's whole answer."""
        try:
            return super().ask()
        finally:
            self._connection.close()  # the next request opens another


class KeptHttpStream(KeptHttp):
    """Server-sent events over one HTTP connection."""

    name, path = "HTTP streams, kept", "generate_stream"

    def _more(self) -> dict[str, bool]:
        return {"stream": True}

    def _text(self, body: bytes) -> str:
        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]
        return "".join(event["text_output"] for event in events)


class Routed(KeptHttp):
    """Whole answers through a Gateway, which knows the model by the host that the client names."""

    name = "HTTP through the Gateway, kept"

    def __init__(self, model: str, host: str, ports: dict[str, int], question: SmokeQuestion, *, known_as: str) -> None:
        super().__init__(model, host, ports, question)
        self._headers = {"Host": known_as}


Kind = Callable[[str, str, dict[str, int], SmokeQuestion], Client]
CLIENTS: tuple[Kind, ...] = (
    FreshGrpc,
    KeptGrpc,
    KeptHttp,
    KeptHttpStream,
)


class Traffic:
    """One client of each of `kinds`, each answer checked. Used as a context; the counts are complete after it.

    A client waits for `pause_s` between an answer and its next request. The clients stop when the process ends.
    """

    def __init__(
        self,
        model: str,
        host: str,
        ports: dict[str, int],
        question: SmokeQuestion,
        kinds: Sequence[Kind] = CLIENTS,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._question, self._pause_s = question, pause_s
        self._counting = threading.Lock()
        self.counts: dict[str, int] = {}
        self.failures: list[str] = []
        self.seconds = 0.0
        self.has_begun = False
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(kind(model, host, ports, question),), daemon=True)
            for kind in kinds
        ]

    @property
    def requests(self) -> int:
        """Number of requests of all clients."""
        return sum(self.counts.values())

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self.has_begun = True
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * ANSWER_TIMEOUT_S)
        self.seconds = time.monotonic() - self._began

    def _ask_on(self, client: Client) -> None:
        name = client.name
        with self._counting:
            self.counts.setdefault(name, 0)
        while not self._stop.is_set():
            with self._counting:
                self.counts[name] += 1
            try:
                text = client.ask()
                if not self._question.accepts(text):
                    self.failures.append(f"{name}: answered {text!r}, expected {self._question.answer!r}"[:200])
            except Exception as error:  # noqa: BLE001 - to a client every error is a failed request
                self.failures.append(f"{name}: {type(error).__name__}: {error}"[:200])
            self._stop.wait(self._pause_s)
        client.close()


def ask(model: str, host: str, ports: dict[str, int], question: SmokeQuestion) -> str:
    """The model's whole answer.

    Raises:
        PipelineError: the server does not answer, or refuses the prompt.
    """
    with TritonClient(host, ports["http"], ports["grpc"]) as connection:
        return connection.generate(model, request_of(question), ANSWER_TIMEOUT_S).text
