"""triton_python_backend_utils as far as our models use it: tensors, requests and responses, and no Triton.

`Stub.models` has a function per model that answers its requests: inputs by name in, responses out.
"""

import threading
from types import ModuleType

import numpy as np


class Tensor:
    def __init__(self, name, array):
        self._name, self._array = name, array

    @classmethod
    def from_dlpack(cls, name, tensor):
        return cls(name, tensor)

    def name(self):
        return self._name

    def as_numpy(self):
        return self._array


class TritonError:
    INVALID_ARG, UNAVAILABLE, INTERNAL = "INVALID_ARG", "UNAVAILABLE", "INTERNAL"

    def __init__(self, message, code=INTERNAL):
        self._message, self._code = message, code

    def message(self):
        return self._message

    def code(self):
        return self._code


class InferenceResponse:
    def __init__(self, output_tensors=(), error=None):
        self._tensors, self._error = list(output_tensors), error

    def output_tensors(self):
        return self._tensors

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error


class Request:
    """A client's request, and what was sent to it."""

    def __init__(self, **inputs):
        self._inputs = {name: Tensor(name, array(value)) for name, value in inputs.items()}
        self.sent, self.ended = [], threading.Event()

    def inputs(self):
        return list(self._inputs.values())

    def get_response_sender(self):
        return self

    def is_cancelled(self):
        return False

    def send(self, response, flags=0):
        self.sent.append((response, flags))
        if flags:
            self.ended.set()


def array(value):
    kinds = {str: object, bool: bool, int: np.int32, float: np.float32}
    return np.array([value.encode() if isinstance(value, str) else value], dtype=kinds[type(value)])


class Stub:
    """The module, and the models that a model may ask."""

    def __init__(self, **models):
        self.models = models
        self.module = ModuleType("triton_python_backend_utils")
        stub = self

        class InferenceRequest:
            def __init__(self, model_name, inputs, requested_output_names, request_id=""):
                self.model, self.number = model_name, request_id
                self.inputs = {tensor.name(): tensor.as_numpy() for tensor in inputs}

            def exec(self, decoupled=False):
                answer = stub.models[self.model](self.number, self.inputs)
                return iter(answer) if decoupled else answer

        def by_name(tensors, name):
            return next((tensor for tensor in tensors if tensor.name() == name), None)

        self.module.Tensor, self.module.TritonError = Tensor, TritonError
        self.module.InferenceResponse, self.module.InferenceRequest = InferenceResponse, InferenceRequest
        self.module.TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
        self.module.get_input_tensor_by_name = lambda request, name: by_name(request.inputs(), name)
        self.module.get_output_tensor_by_name = lambda response, name: by_name(response.output_tensors(), name)
