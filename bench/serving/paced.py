"""A model that answers each client at the same pace, whatever the load, as a GPU does below its limit."""

from bench.pod import Model

NAME = "paced"
TOKENS_PER_S = 50
CONFIG = """
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
instance_group [{ kind: KIND_CPU count: 1 }]
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true },
  { name: "messages" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "finish_reason" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "prompt_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "completion_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
]
"""
CODE = """
import heapq, threading, time
import numpy as np
import triton_python_backend_utils as utils

def tensor(name, value, kind=np.object_):
    return utils.Tensor(name, np.array([value], dtype=kind))

class TritonPythonModel:
    def initialize(self, args):
        self.due, self.number, self.changed = [], 0, threading.Condition()
        threading.Thread(target=self.run, daemon=True).start()

    def execute(self, requests):
        with self.changed:
            for request in requests:
                tokens = int(utils.get_input_tensor_by_name(request, "max_tokens").as_numpy()[0])
                self.number += 1
                begins = time.monotonic() + FIRST
                heapq.heappush(self.due, (begins, self.number, 1, tokens, request.get_response_sender()))
            self.changed.notify()

    def run(self):
        while True:
            with self.changed:
                while not self.due or self.due[0][0] > time.monotonic():
                    self.changed.wait(self.due[0][0] - time.monotonic() if self.due else None)
                at, number, done, tokens, sender = heapq.heappop(self.due)
                if done < tokens:
                    heapq.heappush(self.due, (at + 1 / RATE, number, done + 1, tokens, sender))
            outputs = [tensor("text_output", " token"), tensor("finish_reason", "length" if done == tokens else "")]
            if done == tokens:
                outputs += [tensor("prompt_tokens", 4, np.int32), tensor("completion_tokens", tokens, np.int32)]
            final = utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if done == tokens else 0
            sender.send(utils.InferenceResponse(outputs), flags=final)
"""


def paced(first_s: float) -> Model:
    """A model whose first token takes `first_s` seconds, as reading a prompt does."""
    return Model(CONFIG, CODE.replace("RATE", str(TOKENS_PER_S)).replace("FIRST", str(first_s)))


PACED = paced(0.0)
