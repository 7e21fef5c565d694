"""Stands in for tensorrt_llm's LLM API, over OpenVINO on CPU. tests/contracts/tensorrt_llm_llmapi.json has its manners:
a result gives itself again and again, with all tokens so far, and is asked for while an event loop runs.

Sampling parameters are those of that record. As TorchSampler of 1.2 does, it ignores seed, penalties, bad words and min_p.
Every request is a line of asked.jsonl beside the model's version, with the parameters that were set.
"""

import asyncio
import json
import secrets
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import openvino as ov
import openvino_genai as genai

from tensorrt_llm import llmapi as llmapi

FINISHED = {genai.GenerationFinishReason.STOP: "stop", genai.GenerationFinishReason.LENGTH: "length"}

STEP_S = 0.005
"""Between two steps: an engine on a GPU leaves Python that much time."""


@dataclass(kw_only=True)
class SamplingParams:
    """With the defaults of upstream, which validates them as here (tensorrt_llm/sampling_params.py, _validate)."""

    end_id: int | None = None
    pad_id: int | None = None
    max_tokens: int = 32
    bad: str | list | None = None
    bad_token_ids: list | None = None
    stop: str | list | None = None
    stop_token_ids: list | None = None
    n: int = 1
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    min_p: float | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    guided_decoding: llmapi.GuidedDecodingParams | None = None
    ignore_eos: bool = False
    detokenize: bool = True

    def __post_init__(self):
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")
        if self.top_k is not None and self.top_k < 0:
            raise ValueError(f"require top_k >= 0, got top_k={self.top_k}")
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"require temperature > 0, got temperature={self.temperature}")
        if self.min_tokens is not None and self.min_tokens < 1:
            raise ValueError(f"require min_tokens >= 1, got min_tokens={self.min_tokens}")
        if self.logprobs is not None and self.logprobs < 0:
            raise ValueError(f"require logprobs >= 0, got logprobs={self.logprobs}")


class LLM:
    def __init__(self, model, *, skip_tokenizer_init, tensor_parallel_size, max_batch_size, **others):
        self.skips, self.guides = skip_tokenizer_init, others.get("guided_decoding_backend") is not None
        assert self.skips or self.guides
        assert tensor_parallel_size == 1
        self.asked = (Path(model).parents[1] / "asked.jsonl").open("a", encoding="utf-8")
        assert others.keys() >= {"max_seq_len", "max_input_len", "kv_cache_config"}
        scheduler = genai.SchedulerConfig()
        for name, value in json.loads((Path(model) / "template_values.json").read_text())["scheduler"].items():
            setattr(scheduler, name, value)
        self.pipeline = genai.ContinuousBatchingPipeline(model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": 1})
        self.lock, self.running, self.number = threading.Lock(), {}, 0
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def generate_async(self, inputs, sampling_params, streaming, lora_request=None):
        """An adapter makes answers short here: of as many tokens as its file says."""
        assert streaming
        assert not sampling_params.detokenize
        given = {name: value for name, value in asdict(sampling_params).items() if value is not None}
        self.asked.write(json.dumps({"inputs": inputs, **given}) + "\n")
        self.asked.flush()
        if sampling_params.end_id is None and self.skips:
            raise ValueError("end_id is required when the tokenizer is not loaded")
        if sampling_params.guided_decoding is not None and not self.guides:
            raise ValueError("Guided decoding is not enabled: guided_decoding_backend is not set")
        config = self.pipeline.get_config()
        config.max_new_tokens, config.do_sample = sampling_params.max_tokens, sampling_params.top_k != 1
        config.min_new_tokens = sampling_params.min_tokens or 0
        if sampling_params.logprobs:  # 0 reports none with the PyTorch backend
            config.logprobs = 1
        if sampling_params.guided_decoding is not None:
            grammar = sampling_params.guided_decoding.grammar
            config.structured_output_config = genai.StructuredOutputConfig(grammar=grammar)
        if lora_request is not None:
            config.max_new_tokens = int((Path(lora_request.lora_path) / "tokens").read_text())
        config.set_eos_token_id(sampling_params.end_id)
        if config.do_sample:
            config.temperature, config.rng_seed = sampling_params.temperature, secrets.randbits(32)
            config.top_p = 1.0 if sampling_params.top_p is None else sampling_params.top_p
            if sampling_params.top_k:
                config.top_k = sampling_params.top_k
        with self.lock:
            self.number += 1
            handle = self.pipeline.add_request(self.number, ov.Tensor(np.array([inputs], dtype=np.int64)), config)
            result = RequestOutput(handle, reports=bool(sampling_params.logprobs))
            self.running[self.number] = result
        return result

    def shutdown(self):
        self.closing.set()
        self.thread.join()
        self.asked.close()

    def run(self):
        while not self.closing.is_set():
            with self.lock:
                busy = self.pipeline.has_non_finished_requests()
                if busy:
                    self.pipeline.step()
                for number in [number for number, result in self.running.items() if result.report()]:
                    del self.running[number]
            self.closing.wait(STEP_S)


@dataclass
class Logprob:
    logprob: float
    rank: int


class RequestOutput:
    def __init__(self, handle, *, reports):
        self.handle, self.finished, self.reports = handle, False, reports
        empty = {"token_ids": [], "token_ids_diff": [], "logprobs": [], "logprobs_diff": []}
        self.outputs = [SimpleNamespace(index=0, finish_reason=None, **empty)]
        self.loop, self.arrived = asyncio.get_running_loop(), asyncio.Queue()

    def abort(self):
        self.handle.cancel()

    def report(self):
        """Hand on what the last step made; whether it was the last."""
        if not self.handle.can_read():
            return self.handle.get_status() == genai.GenerationStatus.CANCEL
        made = next(iter(self.handle.read().values()), None)
        if made is None:  # cancelled, by the other thread, since it could be read
            return True
        reason = FINISHED.get(made.finish_reason)
        logprobs = made.generated_log_probs if self.reports else ()
        found = [{token: Logprob(value, 1)} for token, value in zip(made.generated_ids, logprobs, strict=False)]
        self.loop.call_soon_threadsafe(self.arrived.put_nowait, (made.generated_ids, found, reason))
        return reason is not None

    async def __aiter__(self):
        while not self.finished:
            tokens, logprobs, reason = await self.arrived.get()
            self.outputs[0].token_ids += tokens
            self.outputs[0].token_ids_diff = tokens
            self.outputs[0].logprobs += logprobs
            self.outputs[0].logprobs_diff = logprobs
            self.outputs[0].finish_reason, self.finished = reason, reason is not None
            yield self
