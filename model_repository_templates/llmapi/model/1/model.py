"""Triton model over TensorRT-LLM's LLM API. Everything that is not TensorRT-LLM is in generation/."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from generation.answers.logprobs import token_logprobs
from generation.grammar.ebnf import Dialect
from generation.model_files.hf_tokenizer import HuggingFaceTokenizer
from generation.requests.adapters import Adapter, read_adapters
from generation.running.async_runtime import AsyncRuntime, end_of
from generation.runtime import Controls, Progress, Sampling
from generation.service import Service
from generation.settings import check_numpy, read_settings
from speculation import with_speculation

GUIDED = "guided_decoding_backend"


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model; an error here keeps it from becoming ready."""
        check_numpy(np.__version__)
        settings = read_settings(args)
        gpus = settings.parameters.get("gpu_device_ids")
        if gpus:  # before anything loads CUDA; the workers look for the second name
            os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["TRTLLM_VISIBLE_DEVICES"] = gpus
        tokenizer = HuggingFaceTokenizer(
            settings.engine, chat=settings.apply_chat_template, arguments=settings.template_arguments()
        )
        self._llm = _load(settings.engine, Path(__file__).with_name("model.yaml"))
        limits = settings.limits(tokenizer.default_max_tokens or settings.max_sequence_tokens)
        adapters = read_adapters(settings.parameters, settings.engine)
        runtime = LlmApiRuntime(self._llm, tokenizer.end_ids, adapters)
        self._service = Service(
            runtime, tokenizer, limits, slots=settings.max_batch_size, adapters=adapters, dialect=Dialect.ALL_OR_NONE
        )

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers follow."""
        self._service.accept(requests)

    def finalize(self) -> None:
        """Finish what runs."""
        self._service.drain()
        self._llm.shutdown()


def _load(engine: Path, arguments: Path) -> Any:
    from tensorrt_llm import LLM

    stated = yaml.safe_load(arguments.read_text(encoding="utf-8"))
    # guided decoding needs the texts of the vocabulary, which the engine reads from its own tokenizer
    skips = GUIDED not in stated
    return LLM(model=str(engine), skip_tokenizer_init=skips, **with_speculation(stated, engine))


def _requests(adapters: Mapping[str, Adapter]) -> dict[str, Any]:
    """What the LLM API takes instead of a name. Its number is the key of its cache."""
    if not adapters:
        return {}
    from tensorrt_llm.executor.request import LoRARequest

    return {each.name: LoRARequest(each.name, each.number, str(each.folder)) for each in adapters.values()}


class LlmApiRuntime(AsyncRuntime):
    """A Runtime over tensorrt_llm.LLM (1.2)."""

    def __init__(self, llm: Any, end_ids: Sequence[int], adapters: Mapping[str, Adapter]) -> None:
        import tensorrt_llm

        super().__init__()
        self._api, self._llm, self._end_ids, self._adapters = tensorrt_llm, llm, list(end_ids), _requests(adapters)

    async def answer(self, number: int, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Progress]:
        """Top-k 1 is greedy, for a temperature is above 0; without a seed the engine's own is always the same."""
        ends = {"end_id": self._end_ids[0], "stop_token_ids": self._end_ids[1:] or None}
        how = {**_chosen(sampling), **_controls(sampling.controls, self._api)}
        adapter, alternatives = self._adapters.get(sampling.adapter), sampling.controls.logprobs
        result: Any = None
        try:
            chosen = self._api.SamplingParams(max_tokens=sampling.max_tokens, detokenize=False, **ends, **how)
            result = self._llm.generate_async(list(prompt), chosen, lora_request=adapter, streaming=True)
            async for report in result:
                output = report.outputs[0]
                tokens = [token for token in output.token_ids_diff if token not in self._end_ids]
                end = end_of(output.finish_reason) if report.finished else ("", "")
                logprobs = [] if alternatives is None else token_logprobs(tokens, output.logprobs_diff, alternatives)
                yield Progress(number, tokens, *end, logprobs)
        except asyncio.CancelledError:
            if result is not None:
                result.abort()
            raise
        except (self._api.llmapi.RequestError, ValueError) as error:
            yield Progress(number, (), failure=f"the engine refused this request: {str(error)[:256]}.")


def _chosen(sampling: Sampling) -> dict[str, Any]:
    if sampling.temperature == 0:
        return {"top_k": 1}
    seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
    top_k = {"top_k": sampling.controls.top_k} if sampling.controls.top_k else {}
    return {"temperature": sampling.temperature, "top_p": sampling.controls.top_p, "seed": seed, **top_k}


def _controls(controls: Controls, api: Any) -> dict[str, Any]:
    """What TorchSampler of 1.2 obeys; it takes penalties, bad words and min_p as well, and ignores them."""
    given: dict[str, Any] = {"min_tokens": controls.min_tokens} if controls.min_tokens else {}
    if controls.logprobs is not None:
        given["logprobs"] = max(1, controls.logprobs)  # 0 reports none with the PyTorch backend
    if controls.grammar:
        given["guided_decoding"] = api.llmapi.GuidedDecodingParams(grammar=controls.grammar)
    return given
