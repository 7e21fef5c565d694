"""Stands in for the tensorrt_llm model: the same inputs, outputs and manners, over OpenVINO on CPU.

What it must know of the real backend is written in tests/contracts/triton_tensorrt_llm_model.json: tokens come as they
are made when `streaming` is set, else all at once; the last response is marked as final; a second request of the same id
with `stop` ends the first one; an adapter's weights stay after the first request that brings them. An adapter makes
answers short here: of as many tokens as its weights say. Beside it lies the openvino model's own runtime, which it
drives.

Triton refuses names, types and shapes that config.pbtxt does not declare, as it does in front of the real backend. What
the backend and TensorRT-LLM check is checked here, and every request is a line of asked.jsonl beside the model's version:
name, type, shape and values of each input. All sampling parameters are obeyed but bad words, which OpenVINO does not have.
"""

import itertools
import json
import os
import queue
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np
import openvino_genai as genai
import triton_python_backend_utils as pb_utils
from generation.runtime import Controls, Sampling
from openvino_runtime import OpenVinoRuntime

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
GREEDY_TOP_K = 1
CONTROLS = {
    "top_p": "runtime_top_p",
    "top_k": "runtime_top_k",
    "min_tokens": "min_tokens",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
}
"""Names of generation.runtime's controls, and of the inputs that set them; the ensemble sends two of these."""
LEAST_TOKENS = 1
"""Where a request says nothing: mMinTokens of cpp/include/tensorrt_llm/executor/executor.h (1.2)."""
RANKS_MEET_WITHIN_S = 60
NOT_CACHED = "Executor failed: LoRA task {} not found in cache. Please send LoRA weights with request"


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.slots, self.waiting = config["max_batch_size"], deque()
        engine = Path(config["parameters"]["gpt_model_path"]["string_value"])
        check_devices(config["parameters"].get("gpu_device_ids"), json.loads((engine / "config.json").read_text()))
        self.guides = is_guided(config["parameters"])
        scheduler = genai.SchedulerConfig()
        for name, value in json.loads((engine / "template_values.json").read_text())["scheduler"].items():
            setattr(scheduler, name, value)
        threads = {"INFERENCE_NUM_THREADS": 1}
        self.pipeline = Pipeline(genai.ContinuousBatchingPipeline(str(engine), scheduler, "CPU", threads))
        self.arrived, self.running, self.numbers = queue.SimpleQueue(), {}, 0
        self.runtime = OpenVinoRuntime(self.pipeline)
        self.closing, self.adapters = threading.Event(), {}
        self.asked = (Path(args["model_repository"]) / "asked.jsonl").open("a", encoding="utf-8")
        meet_other_ranks(Path(args["model_repository"]))
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def execute(self, requests):
        for request in requests:
            self.arrived.put(request)

    def finalize(self):
        self.closing.set()
        self.thread.join()
        self.asked.close()

    def run(self):
        while not self.closing.is_set():
            self.take()
            for progress in self.runtime.step() if self.runtime.has_work() else ():
                self.give(progress)

    def take(self):
        try:
            while True:
                self.queue_up(self.arrived.get(timeout=0.0 if self.running else 0.01))
        except queue.Empty:
            while self.waiting and len(self.running) < self.slots:
                self.begin(self.waiting.popleft())

    def queue_up(self, request):
        if scalar(request, "stop"):
            self.end_others(request.request_id())
            request.get_response_sender().send(pb_utils.InferenceResponse([]), flags=FINAL)
        else:
            self.waiting.append(request)

    def begin(self, request):
        self.numbers += 1
        self.asked.write(json.dumps({each.name(): described(each) for each in request.inputs()}) + "\n")
        self.asked.flush()
        try:
            check_request(request)
            grammar = self.grammar(request)
            room = self.room(request)
        except AssertionError as error:
            refused = pb_utils.TritonError(str(error))
            request.get_response_sender().send(pb_utils.InferenceResponse(error=refused), flags=FINAL)
            return
        prompt = tensor(request, "input_ids")[0].tolist()
        self.pipeline.ends = [scalar(request, "end_id"), *one_token_words(tensor(request, "stop_words_list"))]
        greedy = scalar(request, "runtime_top_k") == GREEDY_TOP_K
        temperature = 0.0 if greedy else scalar(request, "temperature")
        reports = bool(scalar(request, "return_log_probs"))
        found = {name: scalar(request, tensor_name) for name, tensor_name in CONTROLS.items()}
        given = {name: value for name, value in found.items() if value is not None}
        controls = Controls(**{"min_tokens": LEAST_TOKENS, **given}, logprobs=0 if reports else None, grammar=grammar)
        sampling = Sampling(room, temperature, scalar(request, "seed") % 2**32, controls=controls)
        sender, streaming = request.get_response_sender(), bool(scalar(request, "streaming"))
        self.running[self.numbers] = (request.request_id(), sender, streaming, [], [] if reports else None)
        self.runtime.add(self.numbers, prompt, sampling)

    def grammar(self, request):
        """Read the guide as getGuidedDecodingParamsFromTensors of utils.cc does, which ignores a type that it does not know."""
        kind, guide = (text(request, f"guided_decoding_{name}") for name in ("guide_type", "guide"))
        if kind not in {"json", "json_schema", "regex", "ebnf_grammar"}:
            return ""
        assert self.guides, "Guided decoding is not enabled"
        assert kind == "ebnf_grammar", "this stand-in knows no other kind"
        return guide

    def room(self, request):
        """Tokens of the answer; an adapter that is asked for the first time brings its weights."""
        if (adapter := scalar(request, "lora_task_id")) is None:
            return scalar(request, "request_output_len")
        has_weights = pb_utils.get_input_tensor_by_name(request, "lora_weights") is not None
        assert adapter in self.adapters or has_weights, NOT_CACHED.format(adapter)
        return self.adapters.setdefault(adapter, self.adapters.get(adapter) or short_of(request))

    def end_others(self, identity):
        for number in [number for number, running in self.running.items() if running[0] == identity]:
            self.runtime.cancel(number)
            self.running.pop(number)[1].send(response([]), flags=FINAL)
        for request in [request for request in self.waiting if request.request_id() == identity]:
            self.waiting.remove(request)
            request.get_response_sender().send(response([]), flags=FINAL)

    def give(self, progress):
        assert not progress.failure, progress.failure
        _, sender, streaming, tokens, logprobs = self.running[progress.number]
        tokens.extend(progress.tokens)
        if logprobs is not None:
            logprobs.extend(each.logprob for each in progress.logprobs)
        if progress.finish_reason:
            del self.running[progress.number]
        if progress.finish_reason or streaming:
            sender.send(response(tokens, logprobs), flags=FINAL if progress.finish_reason else 0)
            tokens.clear()


def is_guided(parameters):
    """Check the parameters as getGuidedDecodingConfigFromParams of model_instance_state.cc (0c8de69a) does."""
    backend, described = (
        parameters[name]["string_value"] for name in ("guided_decoding_backend", "xgrammar_tokenizer_info_path")
    )
    if not backend or not described:
        return False
    if not Path(described).exists():
        raise pb_utils.TritonModelException(f"Xgrammar's tokenizer info path at {described} does not exist.")
    vocabulary = json.loads(Path(described).read_text())
    known = [vocabulary[name] for name in ("encoded_vocab", "tokenizer_str", "stop_token_ids")]
    if backend != "xgrammar" or not all(known):
        raise pb_utils.TritonModelException("Guided decoding is currently supported with 'xgrammar' backend.")
    return True


def short_of(request):
    """Tokens of an answer by the adapter that a request brings."""
    weights, config = tensor(request, "lora_weights"), tensor(request, "lora_config")
    assert (weights.shape[:2], weights.dtype, config.shape[2]) == (config.shape[:2], np.float16, 3)
    return int(weights.max())


def check_devices(parameter, config):
    """As WorldConfig of cpp/tensorrt_llm/runtime/worldConfig.cpp: ids are unique, no more than the node has, and below."""
    if parameter is None:
        return
    ids = [int(number) for number in parameter["string_value"].split(",")]
    per_node = config["pretrained_config"]["mapping"]["gpus_per_node"]
    if len(ids) > per_node or max(ids) >= per_node or min(ids) < 0 or len(set(ids)) < len(ids):
        raise pb_utils.TritonModelException(f"Assertion failed: device ids {ids} with {per_node} GPUs per node")


class Pipeline:
    """A pipeline whose answers end where the request says, not where the checkpoint does."""

    def __init__(self, pipeline):
        self.pipeline, self.ends = pipeline, ()

    def get_config(self):
        config = self.pipeline.get_config()
        config.set_eos_token_id(self.ends[0])
        config.stop_token_ids = set(self.ends)
        return config

    def __getattr__(self, name):
        return getattr(self.pipeline, name)


def response(tokens, logprobs=None):
    """Log-probabilities of all tokens so far, of which `tokens` are the newest."""
    ids = np.array(tokens, dtype=np.int32).reshape(1, 1, -1)
    length = np.array([[len(tokens)]], dtype=np.int32)
    outputs = [pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", length)]
    if logprobs is not None:
        outputs.append(pb_utils.Tensor("output_log_probs", np.array(logprobs, dtype=np.float32).reshape(1, 1, -1)))
    return pb_utils.InferenceResponse(outputs)


RANGES = {
    "runtime_top_k": lambda value: value >= 0,
    "runtime_top_p": lambda value: 0 < value <= 1,
    "temperature": lambda value: value > 0,
    "min_tokens": lambda value: value >= 1,
    "repetition_penalty": lambda value: value > 0,
    "beam_width": lambda value: value == 1,
    "request_output_len": lambda value: value >= 1,
}
"""TLLM_CHECK of cpp/tensorrt_llm/executor/samplingConfig.cpp (3585984b). Older copies refuse a temperature of 0 and
min_tokens of 0, as here; beams beyond max_beam_width of config.pbtxt are refused by the executor."""
SCALARS = ("input_lengths", "end_id", "pad_id", "seed", "presence_penalty", "frequency_penalty", "return_log_probs")
WORDS = ("stop_words_list", "bad_words_list")


def check_request(request):
    """Refuse what createRequestsFromInputTensors and convertWordList of utils.cc (19290813) refuse."""
    prompt = tensor(request, "input_ids")
    assert prompt.ndim == 2, "Expected inputTokens tensors to have 2 dimensions"
    assert prompt.shape == (1, scalar(request, "input_lengths")), "input_lengths is that of the prompt"
    for name in (*RANGES, *SCALARS):
        found = pb_utils.get_input_tensor_by_name(request, name)
        assert found is None or found.as_numpy().size == 1, f"Invalid size for tensor {name}"
    for name, accepts in RANGES.items():
        value = scalar(request, name)
        assert value is None or accepts(value), f"Assertion failed: {name} is {value}"
    for name in WORDS:
        found = pb_utils.get_input_tensor_by_name(request, name)
        if found is not None:
            check_words(found.as_numpy())


def check_words(words):
    assert words.ndim == 3, "a row of ids and a row of ends, in a batch of one"
    assert words.shape[:2] == (1, 2), "a row of ids and a row of ends, in a batch of one"
    count, ends = words.shape[2], words[0, 1].tolist()
    stated = list(itertools.takewhile(lambda end: end != -1, ends))
    assert set(ends[len(stated) :]) <= {-1}, f"Sparse list must not have additional -1s: {ends}"
    assert all(end <= count for end in stated), f"Sparse list must not have out-of-bound offsets: {ends}"
    assert all(a < b for a, b in itertools.pairwise(stated)), (
        f"Sparse list must not have non-increasing offsets: {ends}"
    )


def described(each):
    values = each.as_numpy()
    shown = [value.decode() for value in values.reshape(-1)] if values.dtype == object else values.reshape(-1).tolist()
    return {"type": "bytes" if values.dtype == object else str(values.dtype), "shape": values.shape, "values": shown}


def one_token_words(words):
    """Of the two rows: all ids, and where each word ends."""
    ids, ends = words[0].tolist()
    bounds = [0, *(end for end in ends if end > 0)]
    return [ids[begin] for begin, end in itertools.pairwise(bounds) if end - begin == 1]


def tensor(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def text(request, name):
    found = pb_utils.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy().reshape(-1)[0].decode()


def scalar(request, name):
    found = pb_utils.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy().reshape(-1)[0].item()


def meet_other_ranks(folder):
    """Return once every rank that the same mpirun started is here, as MPI_Init does; ranks share `folder`."""
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    if size == 1:
        return
    job = os.environ["PMIX_NAMESPACE"]
    (folder / f"rank-{os.environ['OMPI_COMM_WORLD_RANK']}-of-{job}").touch()
    deadline = time.monotonic() + RANKS_MEET_WITHIN_S
    while len(list(folder.glob(f"rank-*-of-{job}"))) < size:
        if time.monotonic() > deadline:
            raise pb_utils.TritonModelException(f"fewer than {size} ranks came within {RANKS_MEET_WITHIN_S} s")
        time.sleep(0.05)
