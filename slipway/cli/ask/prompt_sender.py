"""Sends prompts to a model's servers, again while they are unavailable."""

import threading
import time
from contextlib import closing

from slipway.cli.ask.batch_files import Prompt, Result, digest_of
from slipway.cli.ask.generate import GenerateClient
from slipway.cli.ask.model_connection import ModelServers
from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError

ATTEMPTS = 6
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


class PromptSender:
    """Sends one prompt until it is answered or refused."""

    def __init__(self, name: str, servers: ModelServers, *, max_tokens: int, attempts: int, timeout_s: float) -> None:
        self._name, self._servers = name, servers
        self._max_tokens, self._attempts, self._timeout_s = max_tokens, attempts, timeout_s

    def answer(self, prompt: Prompt, stop: threading.Event) -> Result:
        """The complete answer.

        Raises:
            NoServerError: there is no such release or no access to it, so no prompt can be answered.
            InputError: the server refuses this prompt.
            UnavailableError: the last attempt failed, or the batch stops.
        """
        request, pause_s = prompt.request(self._max_tokens), FIRST_PAUSE_S
        for left in reversed(range(self._attempts)):
            try:
                return self._once(prompt.id, request)
            except UnavailableError:
                self._servers.forget()
                if not left or stop.wait(pause_s):
                    raise
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    def _once(self, identity: str, request: GenerateRequest) -> Result:
        try:
            connection, where = self._servers.open()
        except InputError as error:
            raise NoServerError(error) from error
        began, pieces, first_s, reason = time.monotonic(), [], None, ""
        with closing(connection):
            for chunk in GenerateClient(connection, str(where), self._servers.api_key).stream(
                self._name, request, self._timeout_s
            ):
                first_s = chunk.at_s - began if first_s is None and chunk.text else first_s
                pieces.append(chunk.text)
                reason = chunk.finish_reason or reason
        return Result(
            id=identity,
            request=digest_of(request),
            answer="".join(pieces),
            finish_reason=reason,
            first_piece_s=None if first_s is None else round(first_s, 4),
            seconds=round(time.monotonic() - began, 4),
        )


class NoServerError(Exception):
    """No prompt can be answered; `error` says why."""

    def __init__(self, error: PipelineError) -> None:
        super().__init__(str(error))
        self.error = error
