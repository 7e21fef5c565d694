"""Stands in for tensorrt_llm's LLM API, over OpenVINO on CPU. tests/contracts/tensorrt_llm_llmapi.json has its manners:
a result gives itself again and again, with all tokens so far, and is asked for while an event loop runs."""

import asyncio
import json
import threading
from dataclasses import dataclass
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
    max_tokens: int
    end_id: int
    stop_token_ids: list | None
    detokenize: bool
    top_k: int | None = None
    top_p: float | None = None
    temperature: float | None = None
    seed: int | None = None


class LLM:
    def __init__(self, model, *, skip_tokenizer_init, tensor_parallel_size, max_batch_size, **others):
        assert skip_tokenizer_init
        assert tensor_parallel_size == 1
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
        config = self.pipeline.get_config()
        config.max_new_tokens, config.do_sample = sampling_params.max_tokens, sampling_params.top_k != 1
        if lora_request is not None:
            config.max_new_tokens = int((Path(lora_request.lora_path) / "tokens").read_text())
        config.set_eos_token_id(sampling_params.end_id)
        if config.do_sample:
            config.temperature, config.rng_seed = sampling_params.temperature, sampling_params.seed % 2**32
        with self.lock:
            self.number += 1
            handle = self.pipeline.add_request(self.number, ov.Tensor(np.array([inputs], dtype=np.int64)), config)
            result = RequestOutput(handle)
            self.running[self.number] = result
        return result

    def shutdown(self):
        self.closing.set()
        self.thread.join()

    def run(self):
        while not self.closing.is_set():
            with self.lock:
                busy = self.pipeline.has_non_finished_requests()
                if busy:
                    self.pipeline.step()
                for number in [number for number, result in self.running.items() if result.report()]:
                    del self.running[number]
            self.closing.wait(STEP_S)


class RequestOutput:
    def __init__(self, handle):
        self.handle, self.finished = handle, False
        self.outputs = [SimpleNamespace(index=0, token_ids=[], token_ids_diff=[], finish_reason=None)]
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
        self.loop.call_soon_threadsafe(self.arrived.put_nowait, (made.generated_ids, reason))
        return reason is not None

    async def __aiter__(self):
        while not self.finished:
            tokens, reason = await self.arrived.get()
            self.outputs[0].token_ids += tokens
            self.outputs[0].token_ids_diff = tokens
            self.outputs[0].finish_reason, self.finished = reason, reason is not None
            yield self
