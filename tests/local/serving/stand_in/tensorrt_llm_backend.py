"""Stands in for the tensorrt_llm model: the same inputs, outputs and manners, over OpenVINO on CPU.

What it must know of the real backend is written in tests/contracts/triton_tensorrt_llm_model.json: tokens come as they
are made when `streaming` is set, else all at once; the last response is marked as final; a second request of the same id
with `stop` ends the first one; an adapter's weights stay after the first request that brings them. An adapter makes
answers short here: of as many tokens as its weights say. Beside it lies the openvino model's own file, whose runtime it
drives.
"""

import itertools
import json
import queue
import threading
from collections import deque
from pathlib import Path

import numpy as np
import openvino_genai as genai
import triton_python_backend_utils as pb_utils
from generation.runtime import Sampling
from openvino_model import OpenVinoRuntime

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
GREEDY_TOP_K = 1
NOT_CACHED = "Executor failed: LoRA task {} not found in cache. Please send LoRA weights with request"


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.slots, self.waiting = config["max_batch_size"], deque()
        engine = Path(config["parameters"]["gpt_model_path"]["string_value"])
        check_devices(config["parameters"].get("gpu_device_ids"), json.loads((engine / "config.json").read_text()))
        scheduler = genai.SchedulerConfig()
        for name, value in json.loads((engine / "template_values.json").read_text())["scheduler"].items():
            setattr(scheduler, name, value)
        threads = {"INFERENCE_NUM_THREADS": 1}
        self.pipeline = Pipeline(genai.ContinuousBatchingPipeline(str(engine), scheduler, "CPU", threads))
        self.arrived, self.running, self.numbers = queue.SimpleQueue(), {}, 0
        self.runtime = OpenVinoRuntime(self.pipeline)
        self.closing, self.adapters = threading.Event(), {}
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def execute(self, requests):
        for request in requests:
            self.arrived.put(request)

    def finalize(self):
        self.closing.set()
        self.thread.join()

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
        prompt = tensor(request, "input_ids")[0].tolist()
        assert len(prompt) == scalar(request, "input_lengths")
        room = scalar(request, "request_output_len")
        if (adapter := scalar(request, "lora_task_id")) is not None:
            if adapter not in self.adapters and pb_utils.get_input_tensor_by_name(request, "lora_weights") is None:
                error = pb_utils.TritonError(NOT_CACHED.format(adapter))
                request.get_response_sender().send(pb_utils.InferenceResponse(error=error), flags=FINAL)
                return
            room = self.adapters.setdefault(adapter, self.adapters.get(adapter) or short_of(request))
        self.pipeline.ends = [scalar(request, "end_id"), *one_token_words(tensor(request, "stop_words_list"))]
        greedy = scalar(request, "runtime_top_k") == GREEDY_TOP_K
        temperature = 0.0 if greedy else scalar(request, "temperature")
        assert scalar(request, "temperature") > 0, "TensorRT-LLM refuses it"
        sampling = Sampling(room, temperature, scalar(request, "seed") % 2**32)
        sender, streaming = request.get_response_sender(), bool(scalar(request, "streaming"))
        self.running[self.numbers] = (request.request_id(), sender, streaming, [])
        self.runtime.add(self.numbers, prompt, sampling)

    def end_others(self, identity):
        for number in [number for number, running in self.running.items() if running[0] == identity]:
            self.runtime.cancel(number)
            self.running.pop(number)[1].send(response([]), flags=FINAL)
        for request in [request for request in self.waiting if request.request_id() == identity]:
            self.waiting.remove(request)
            request.get_response_sender().send(response([]), flags=FINAL)

    def give(self, progress):
        assert not progress.failure, progress.failure
        _, sender, streaming, tokens = self.running[progress.number]
        tokens.extend(progress.tokens)
        if progress.finish_reason:
            del self.running[progress.number]
        if progress.finish_reason or streaming:
            sender.send(response(tokens), flags=FINAL if progress.finish_reason else 0)
            tokens.clear()


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


def response(tokens):
    ids = np.array(tokens, dtype=np.int32).reshape(1, 1, -1)
    length = np.array([[len(tokens)]], dtype=np.int32)
    return pb_utils.InferenceResponse([pb_utils.Tensor("output_ids", ids), pb_utils.Tensor("sequence_length", length)])


def one_token_words(words):
    """Of the two rows: all ids, and where each word ends."""
    ids, ends = words[0].tolist()
    bounds = [0, *(end for end in ends if end > 0)]
    return [ids[begin] for begin, end in itertools.pairwise(bounds) if end - begin == 1]


def tensor(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


def scalar(request, name):
    found = pb_utils.get_input_tensor_by_name(request, name)
    return None if found is None else found.as_numpy().reshape(-1)[0].item()
