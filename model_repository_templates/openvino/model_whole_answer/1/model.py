"""Triton model that passes a request on to the decoupled model beside it and gives back the whole answer.

Its requests run side by side: each waits in a thread of its own, and the asked model batches them.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton_python_backend_utils as pb_utils

WAITING_REQUESTS = 256
"""Threads at most; they are made when needed, and what comes beyond waits its turn."""
RETRY = "Ask again."
"""How the asked model ends the text of an error that is not the request's fault."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read which model to ask."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._asked = parameters["asks"]["string_value"]
        self._threads = ThreadPoolExecutor(WAITING_REQUESTS, thread_name_prefix="whole-answer")

    def execute(self, requests: list[Any]) -> None:
        """Start asking; the answers follow through the requests' senders."""
        for request in requests:
            question = pb_utils.InferenceRequest(
                model_name=self._asked,
                inputs=request.inputs(),
                requested_output_names=list(request.requested_output_names()),
            )
            self._threads.submit(_ask, question, request.get_response_sender())

    def finalize(self) -> None:
        """Wait for the requests that run."""
        self._threads.shutdown(wait=True)


def _ask(question: Any, sender: Any) -> None:
    try:
        responses = question.exec(decoupled=True)
        answer = _first(responses)
        sender.is_cancelled()  # lets Triton forget `responses` while they are held: docs/decisions/0007
    except pb_utils.TritonModelException as error:
        answer = _error(f"{error}. It may be stopping. {RETRY}")
    sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _first(responses: Any) -> Any:
    """The response that carries something: the last one of a decoupled model may be empty."""
    for response in responses:
        if response.has_error():
            return _error(response.error().message())
        if response.output_tensors():
            return response
    return _error(f"the model ended without an answer. It may be stopping. {RETRY}")


def _error(message: str) -> Any:
    """An error with the status that the asked model gave it, which Triton drops where one model asks another."""
    is_passing = message.endswith(RETRY)
    code = pb_utils.TritonError.UNAVAILABLE if is_passing else pb_utils.TritonError.INVALID_ARG
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, code))
