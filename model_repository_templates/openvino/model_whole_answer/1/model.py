"""Triton model that passes a request on to the decoupled model beside it and gives back the whole answer.

One request at a time, in the one thread of the instance's process: Triton's Python backend makes the arrays of an asked
model's answer without Python's lock (python_backend src/pb_stub.cc, ProcessBLSResponseDecoupled, July 2026), and
whatever runs meanwhile may break the process. A thread that mostly waits runs least.
"""

import json
from typing import Any

import triton_python_backend_utils as pb_utils

OUTPUTS = ["text_output", "finish_reason"]


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read which model to ask."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._asked = parameters["asks"]["string_value"]

    def execute(self, requests: list[Any]) -> None:
        """Ask for each request; the answer goes through its sender."""
        for request in requests:
            question = pb_utils.InferenceRequest(
                model_name=self._asked, inputs=request.inputs(), requested_output_names=OUTPUTS
            )
            _ask(question, request.get_response_sender())


def _ask(question: Any, sender: Any) -> None:
    try:
        answer = _first(question.exec(decoupled=True))
    except pb_utils.TritonModelException as error:
        answer = pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
    sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


def _first(responses: Any) -> Any:
    """The response that carries something: the last one of a decoupled model may be empty."""
    found = [response for response in responses if response.has_error() or response.output_tensors()]
    if not found:
        raise pb_utils.TritonModelException("the model ended without an answer. It may be stopping; ask again.")
    return found[0]
