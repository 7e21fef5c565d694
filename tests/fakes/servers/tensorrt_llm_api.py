"""tensorrt_llm as the llmapi model uses it: the members that tests/contracts/tensorrt_llm_llmapi.json records, and no GPU.

It answers a prompt with the bytes of `answers`, else with the prompt itself, one at a time. `reports` says whether token_ids
holds the tokens that are new or all of them so far; `with_end` whether the end token shows. A prompt in `refuses` gets a
RequestError, one in `breaks` ends the engine, one in `endless` never ends.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType


@dataclass(kw_only=True)
class SamplingParams:
    end_id: int | None = None
    max_tokens: int = 32
    stop_token_ids: list | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    temperature: float | None = None
    min_tokens: int | None = None
    logprobs: int | None = None
    guided_decoding: object = None
    detokenize: bool = True


@dataclass(kw_only=True)
class GuidedDecodingParams:
    grammar: str | None = None


@dataclass
class Logprob:
    logprob: float
    rank: int


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""

    def __post_init__(self):
        if not Path(self.lora_path).exists():
            raise ValueError(f"lora_path ({self.lora_path}) does not exist.")


class RequestError(RuntimeError):
    pass


@dataclass
class CompletionOutput:
    index: int = 0
    token_ids: list = field(default_factory=list)
    token_ids_diff: list = field(default_factory=list)
    logprobs_diff: list | None = None
    finish_reason: str | None = None


class RequestOutput:
    """Iterating gives the same object again and again, as the real one does."""

    def __init__(self, llm, prompt, sampling_params):
        self.llm, self.prompt, self.sampling_params = llm, bytes(prompt).decode(), sampling_params
        self.outputs, self.finished, self.was_aborted = [CompletionOutput()], False, False

    def abort(self):
        self.was_aborted = True
        self.llm.aborted.append(self.prompt)

    def _report(self, new):
        output, is_new = self.outputs[0], self.llm.reports == "new"
        output.token_ids, output.token_ids_diff = new if is_new else [*output.token_ids, *new], new
        if self.sampling_params.logprobs:  # 0 reports none with the PyTorch backend
            asked = range(self.sampling_params.logprobs)
            output.logprobs_diff = [
                {token: Logprob(-0.5, 2), **{ord("A") + n: Logprob(-0.1 * (n + 1), n) for n in asked}} for token in new
            ]

    async def __aiter__(self):
        fake, output = self.llm, self.outputs[0]
        if self.prompt in fake.breaks:
            raise RuntimeError("no memory is left")
        answer = list(fake.answers.get(self.prompt, self.prompt).encode())
        room, end = self.sampling_params.max_tokens, [self.sampling_params.end_id] if fake.with_end else []
        while self.prompt in fake.endless:
            await asyncio.sleep(0.001)
            self._report([ord("x")])
            yield self
        tokens = (answer + end)[:room]
        for position, token in enumerate(tokens):
            await asyncio.sleep(0)
            self._report([token])
            self.finished = position == len(tokens) - 1
            if self.finished:
                output.finish_reason = fake.ends or ("length" if len(answer) > room else "stop")
            yield self


class LLM:
    def __init__(
        self,
        model,
        *,
        skip_tokenizer_init=False,
        answers=(),
        reports="everything",
        with_end=True,
        refuses=(),
        breaks=(),
        endless=(),
        **arguments,
    ):
        assert skip_tokenizer_init == ("guided_decoding_backend" not in arguments), (
            "guided decoding needs the tokenizer"
        )
        self.ends = arguments.pop("ends", None)
        self.model, self.arguments = model, arguments
        self.answers, self.reports, self.with_end = dict(answers), reports, with_end
        self.refuses, self.breaks, self.endless = refuses, breaks, endless
        self.asked, self.adapters, self.aborted, self.is_shut_down = [], [], [], False

    def generate_async(self, inputs, sampling_params=None, lora_request=None, streaming=False):
        assert streaming
        assert asyncio.get_running_loop(), "without a loop the real one gives results to a thread's queue"
        result = RequestOutput(self, inputs, sampling_params)
        if result.prompt in self.refuses:
            raise RequestError("the prompt is too long for this engine")
        if sampling_params.guided_decoding and "guided_decoding_backend" not in self.arguments:
            raise ValueError("guided decoding is not enabled")
        self.asked.append(sampling_params)
        self.adapters.append(lora_request)
        return result

    def shutdown(self):
        self.is_shut_down = True


def modules():
    """The package and its llmapi module, to be laid into sys.modules."""
    package, llmapi = ModuleType("tensorrt_llm"), ModuleType("tensorrt_llm.llmapi")
    package.LLM, package.SamplingParams, package.llmapi = LLM, SamplingParams, llmapi
    llmapi.GuidedDecodingParams = GuidedDecodingParams
    llmapi.RequestError, llmapi.RequestOutput, llmapi.CompletionOutput = RequestError, RequestOutput, CompletionOutput
    executor, request = ModuleType("tensorrt_llm.executor"), ModuleType("tensorrt_llm.executor.request")
    request.LoRARequest = LoRARequest
    return {
        "tensorrt_llm": package,
        "tensorrt_llm.llmapi": llmapi,
        "tensorrt_llm.executor": executor,
        "tensorrt_llm.executor.request": request,
    }
