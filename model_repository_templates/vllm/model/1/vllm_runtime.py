"""A Runtime over vLLM's AsyncLLM (0.19 to 0.32), whose engine is a process of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from generation.answers.logprobs import token_logprobs
from generation.requests.adapters import Adapter
from generation.running.async_runtime import AsyncRuntime, end_of
from generation.runtime import Controls, Progress, Sampling, TokenLogprob
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs import TokensPrompt
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

LOOK_S = 1.0
"""How often an engine that nobody asks is looked after."""


class VllmRuntime(AsyncRuntime):
    """Its arguments are those of AsyncEngineArgs."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        end_ids: Sequence[int],
        adapters: Mapping[str, Adapter],
        stat_loggers: Sequence[Callable[..., Any]] = (),
    ) -> None:
        """Load the model; whatever vLLM raises when it cannot."""
        super().__init__()
        self._end_ids = list(end_ids)
        self._adapters = {each.name: _request(each) for each in adapters.values()}
        loading = _load(AsyncEngineArgs(**arguments), list(stat_loggers))
        self._llm = asyncio.run_coroutine_threadsafe(loading, self.loop).result()

    def watch(self, on_end: Callable[[], None]) -> None:
        """Have `on_end` called once the engine has died; the next `step` raises why."""
        self._watching = asyncio.run_coroutine_threadsafe(self._watch(on_end), self.loop)

    def load(self, adapter: Adapter) -> None:
        """Load a further adapter; requests may name it from now on, also when nothing else does any more.

        Raises:
            Exception: vLLM cannot serve it.
        """
        request = _request(adapter)
        if not asyncio.run_coroutine_threadsafe(self._llm.add_lora(request), self.loop).result():
            raise RuntimeError("vLLM did not load it")
        self._adapters[adapter.name] = request

    def close(self) -> None:
        """End the engine."""
        self.loop.call_soon_threadsafe(self._watching.cancel)
        self._llm.shutdown()

    async def answer(self, number: int, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Progress]:
        """VLLM aborts a request whose generator is closed."""
        try:
            reports = self._llm.generate(
                TokensPrompt(prompt_token_ids=list(prompt)),
                sampling_params(sampling, self._end_ids),
                str(number),
                lora_request=self._adapters[sampling.adapter] if sampling.adapter else None,
            )
            async with aclosing(reports):
                async for report in reports:
                    yield self._progress(number, report, sampling.controls)
        except EngineDeadError:
            raise
        except Exception as error:  # noqa: BLE001 - vLLM calls everything else recoverable (EngineGenerateError)
            why = str(error.__cause__ or error)[:256]
            yield Progress(number, (), failure=f"the engine refused this request: {why}.")

    def _progress(self, number: int, report: Any, controls: Controls) -> Progress:
        output = report.outputs[0]
        hidden = () if controls.ignore_eos else self._end_ids
        tokens = [token for token in output.token_ids if token not in hidden]
        end = end_of(output.finish_reason) if report.finished else ("", "")
        logprobs = [] if controls.logprobs is None else token_logprobs(tokens, output.logprobs, controls.logprobs)
        return Progress(number, tokens, *end, logprobs, _prompt_logprobs(report, controls))

    async def _watch(self, on_end: Callable[[], None]) -> None:
        try:
            while True:
                await self._llm.check_health()
                await asyncio.sleep(LOOK_S)
        except EngineDeadError as error:
            self.fail(error)
            on_end()


def _request(adapter: Adapter) -> LoRARequest:
    """Its name and number are its own: vLLM finds prompts that it has computed by the one, weights by the other."""
    return LoRARequest(adapter.name, adapter.number, str(adapter.folder))


def _prompt_logprobs(report: Any, controls: Controls) -> list[TokenLogprob]:
    """VLLM gives them with the first report, without one of the first token."""
    if controls.prompt_logprobs is None or not report.prompt_logprobs:
        return []
    first, *others = report.prompt_token_ids
    reported = report.prompt_logprobs[1:]
    return [TokenLogprob(first, None), *token_logprobs(others, reported, controls.prompt_logprobs)]


async def _load(arguments: AsyncEngineArgs, stat_loggers: list[Callable[..., Any]]) -> AsyncLLM:
    """In the loop that will serve, in which vLLM begins to read what its engine makes."""
    return AsyncLLM.from_engine_args(arguments, stat_loggers=stat_loggers)


def sampling_params(sampling: Sampling, end_ids: Sequence[int]) -> SamplingParams:
    """The same in vLLM's words; `end_ids` end an answer. Text is made of tokens elsewhere, and stop words end it there.

    Raises:
        ValueError: vLLM does not take a value.
    """
    controls = sampling.controls
    return SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        seed=sampling.seed,
        top_p=controls.top_p,
        top_k=controls.top_k,
        min_p=controls.min_p,
        min_tokens=controls.min_tokens,
        presence_penalty=controls.presence_penalty,
        frequency_penalty=controls.frequency_penalty,
        repetition_penalty=controls.repetition_penalty,
        bad_words=list(controls.bad_words) or None,
        logprobs=controls.logprobs,
        prompt_logprobs=controls.prompt_logprobs,
        logit_bias=dict(controls.logit_bias) or None,
        structured_outputs=StructuredOutputsParams(grammar=controls.grammar) if controls.grammar else None,
        stop_token_ids=None if controls.ignore_eos else list(end_ids),
        ignore_eos=controls.ignore_eos,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
