"""Triton model that passes a request on to the decoupled model beside it and gives back the whole answer.

Its requests run side by side: each waits in a thread of its own, and the asked model batches them.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import triton_python_backend_utils as pb_utils

WAITING_REQUESTS = 256
"""Threads at most; they are made when needed, and what comes beyond waits its turn."""


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
        answer = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
    sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _first(responses: Any) -> Any:
    """The response that carries something: the last one of a decoupled model may be empty."""
    found = [response for response in responses if response.has_error() or response.output_tensors()]
    if not found:
        raise pb_utils.TritonModelException("the model ended without an answer. It may be stopping. Ask again.")
    return found[0]
