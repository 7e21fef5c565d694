"""Calls of a stranger over gRPC: messages beyond the bounds of Triton's protocol, bytes that are none, odd methods.

Each is sent over a channel of its own, and what came back is judged as sending.py judges answers over HTTP.
"""

import random
import struct
import time
from dataclasses import dataclass

import grpc
from tritonclient.grpc import service_pb2

from bench.serving.sending import DEADLINE_S, RETRY, Outcome, Target
from bench.serving.strangers import DATATYPES, LENGTHS, PARAMETERS, QUESTION

SERVICE = "inference.GRPCInferenceService"
ALLOWED = (
    "ServerLive",
    "ServerReady",
    "ServerMetadata",
    "ModelReady",
    "ModelMetadata",
    "ModelConfig",
    "ModelStatistics",
)
FOR_NOBODY = (
    "SystemSharedMemoryRegister",
    "CudaSharedMemoryStatus",
    "RepositoryModelLoad",
    "TraceSetting",
    "LogSettings",
    "X",
)
SHAPES: tuple[list[int], ...] = ([1], [1], [1], [], [0], [-1], [2], [1, 1], [2**62, 4], [2**63 - 1], [1] * 300)
TEXTS = (
    QUESTION.encode(),
    b"",
    b"\xff\xfe",
    b"\x00",
    "\u202e\x1b[2J".encode(),
    b"x" * 5_000,
    b"x" * 200_000,
    b"x" * (2 << 20),
)
NUMBERS = (0, 1, -1, 2**31, 2**63 - 1, -(2**63))
RIGHT = frozenset({"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"})
OF_NO_MESSAGE = RIGHT | {"INTERNAL", "UNKNOWN", "CANCELLED"}
"""Further statuses by which a server may say that bytes are no message."""
STREAM = f"/{SERVICE}/ModelStreamInfer"


@dataclass(frozen=True)
class Call:
    """One call; `messages` are sent in order, and are more than one only in a stream."""

    method: str
    messages: tuple[bytes, ...]
    is_well_formed: bool = True

    def __str__(self) -> str:
        return f"gRPC {self.method} {[each[:200] for each in self.messages]!r}"


class Caller:
    """Makes calls to a model, always the same ones for a seed."""

    def __init__(self, seed: str, model: str = "demo") -> None:
        self._random = random.Random(seed)  # noqa: S311 - a seed repeats them
        self._model = model

    def call(self) -> Call:
        """A call that is right but for what was done to it."""
        if self._chance(0.15):
            method = self._random.choice([*ALLOWED, *FOR_NOBODY, "/", "../ModelInfer"])
            return Call(f"/{SERVICE}/{method}", (b"",))
        method = self._random.choice([STREAM, STREAM, f"/{SERVICE}/ModelInfer"])
        messages = [self._message() for _ in range(self._random.choice([1, 1, 3]) if method == STREAM else 1)]
        if self._chance(0.1):
            messages[-1] = self._random.choice(
                [b"\xff" * 100, messages[-1][: len(messages[-1]) // 2], b"\x0a\xff\xff\xff\xff\x0f"]
            )
            return Call(method, tuple(messages), is_well_formed=False)
        return Call(method, tuple(messages))

    def _message(self) -> bytes:
        names = [self._model] * 8 + ["", "x" * 5_000, "../x", f"{self._model}_whole_answer"]
        request = service_pb2.ModelInferRequest(model_name=self._random.choice(names))
        request.model_version = self._random.choice([""] * 6 + ["1", "9", "x" * 500])
        request.id = self._random.choice([""] * 4 + ["a", "\x1b[2J", "x" * 5_000])
        self._tensor(request, "text_input", "BYTES", self._element(QUESTION.encode()))
        self._tensor(request, "max_tokens", "INT32", struct.pack("<i", 3))
        for _ in range(self._random.choice([0, 1, 1, 2, 4])):
            value = self._random.choice([self._element(self._random.choice(TEXTS)), self._random.randbytes(8), b""])
            self._tensor(request, self._random.choice(PARAMETERS), self._random.choice(DATATYPES), value)
        for holder in [request, *request.inputs]:
            if self._chance(0.05):
                self._parameter(holder.parameters[self._random.choice(["sequence_id", "priority", "timeout", "x"])])
        if self._chance(0.1):
            output = request.outputs.add(name=self._random.choice(["text_output", "x"]))
            output.parameters["shared_memory_region"].string_param = "triton_python_backend_shm_region_1"
        if self._chance(0.05):
            del request.raw_input_contents[self._random.randrange(len(request.raw_input_contents)) :]
        return bytes(request.SerializeToString())

    def _tensor(self, request: service_pb2.ModelInferRequest, name: str, datatype: str, value: bytes) -> None:
        is_odd = self._chance(0.15)
        shape = self._random.choice(SHAPES) if is_odd else [1]
        request.inputs.add(name=name, datatype=self._random.choice(DATATYPES) if is_odd else datatype, shape=shape)
        request.raw_input_contents.append(value)

    def _element(self, text: bytes) -> bytes:
        return struct.pack("<I", self._random.choice([len(text)] * 20 + LENGTHS)) + text

    def _parameter(self, parameter: service_pb2.InferParameter) -> None:
        if self._chance(0.5):
            parameter.int64_param = self._random.choice(NUMBERS)
        else:
            parameter.string_param = self._random.choice(["", "x" * 5_000])

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


def call(target: Target, made: Call) -> Outcome:
    """Make a call and wait for its end."""
    began, answers = time.monotonic(), list[bytes]()
    status, said = "OK", ""
    with grpc.insecure_channel(f"{target.host}:{target.grpc_port}") as channel:
        try:
            if made.method == STREAM:
                answers += channel.stream_stream(STREAM, bytes, bytes)(iter(made.messages), timeout=2 * DEADLINE_S)
            else:
                answers.append(channel.unary_unary(made.method, bytes, bytes)(made.messages[0], timeout=2 * DEADLINE_S))
        except grpc.RpcError as error:
            status, said = error.code().name, error.details() or ""
    seconds = time.monotonic() - began
    late = f"later than {DEADLINE_S:g} s" if seconds > DEADLINE_S else ""
    complaint = late or judged(made, status, said, answers)
    return Outcome(made, f"grpc {status}", seconds, complaint, said[:400] if complaint else "")


def judged(made: Call, status: str, said: str, answers: list[bytes]) -> str:
    """What is wrong with an answer; empty if nothing is."""
    if status == "UNAVAILABLE" and said.endswith(RETRY):
        return ""
    if status not in (RIGHT if made.is_well_formed else OF_NO_MESSAGE):
        return f"status {status}"
    if made.method != STREAM or not made.is_well_formed or status == "RESOURCE_EXHAUSTED":
        return ""
    if (len(made.messages) > 1) != (status == "FAILED_PRECONDITION"):
        return f"status {status} for {len(made.messages)} requests on a stream"
    return "" if status != "OK" or answers else "no answer"
