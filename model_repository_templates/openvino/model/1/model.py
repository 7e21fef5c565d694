"""Triton model over OpenVINO GenAI's continuous batching. Everything that is not OpenVINO is in generation/."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from generation.channels import CHANNEL, Harmony, harmony_of
from generation.conversation import NO_MESSAGES
from generation.question import RefusedError
from generation.runtime import Controls, Progress, Sampling, Shown, TokenLogprob
from generation.service import Service
from generation.settings import SettingsError, check_numpy, read_settings
from generation.template_arguments import NO_TEMPLATE
from generation.tool_calls import check_tools, format_of

ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
"""Unless the release asks for more: OpenVINO alone would take every CPU of the machine, whatever the pod's limit."""


class TritonPythonModel:
    """What Triton's Python backend loads."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the engine; an error here keeps the model from becoming ready."""
        import openvino_genai as genai

        check_numpy(np.__version__)
        settings = read_settings(args)
        scheduler = genai.SchedulerConfig()
        for name, value in settings.document("scheduler").items():
            setattr(scheduler, name, value)
        properties = {**ONE_THREAD, **settings.document("properties")}
        pipeline = genai.ContinuousBatchingPipeline(str(settings.engine), scheduler, "CPU", properties)
        tokenizer = OpenVinoTokenizer(
            pipeline.get_tokenizer(),
            settings.engine,
            chat=settings.apply_chat_template,
            arguments=settings.template_arguments(),
        )
        limits = settings.limits(pipeline.get_config().max_new_tokens)
        self._service = Service(OpenVinoRuntime(pipeline), tokenizer, limits, slots=settings.max_batch_size)

    def execute(self, requests: list[Any]) -> None:
        """Take requests; their answers follow."""
        self._service.accept(requests)

    def finalize(self) -> None:
        """Finish what runs."""
        self._service.drain()


class OpenVinoTokenizer:
    """A Tokenizer: the engine's own, compiled by openvino-tokenizers."""

    def __init__(self, tokenizer: Any, engine: Path, *, chat: bool, arguments: Mapping[str, Any] | None = None) -> None:
        """`arguments` are those of the chat template for every question."""
        if chat and not tokenizer.chat_template:
            raise SettingsError(f"the tokenizer of {engine} has no chat template; set chat_template to none.")
        self._tokenizer, self._chat, self._arguments = tokenizer, chat, dict(arguments or {})
        self._harmony = self._channels() if CHANNEL in (tokenizer.chat_template or "") else None
        self.tool_call_format = format_of(tokenizer.chat_template or "") if chat else ""

    def encode(self, question: str, template_arguments: Mapping[str, Any] | None = None) -> list[int]:
        """Ids as Hugging Face's tokenizer gives them: a chat template writes BOS itself, else the tokenizer adds it."""
        if self._chat:
            return self.encode_messages([{"role": "user", "content": question}], template_arguments)
        if template_arguments:
            raise RefusedError(NO_TEMPLATE)
        return self.encode_prompt(question)

    def encode_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_arguments: Mapping[str, Any] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Ids of a conversation by the engine's chat template."""
        if not self._chat:
            raise RefusedError(NO_MESSAGES)
        check_tools(self._tokenizer.chat_template, messages, tools)
        arguments = {**self._arguments, **(template_arguments or {})}
        turns, functions = [dict(message) for message in messages], [dict(tool) for tool in tools]
        try:
            text = self._tokenizer.apply_chat_template(
                turns, True, tools=functions or None, extra_context=arguments or None
            )
        except RuntimeError as error:
            given = f" with {', '.join(arguments)}" if arguments else ""
            raise RefusedError(f"the chat template does not take this question{given}: {_last(error)}.") from error
        return self._ids(text)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a text as it is."""
        return self._ids(text, add_special_tokens=True)

    def shown(self, prompt: Sequence[int]) -> Shown:
        """Everything, or the final one of the channels in which gpt-oss answers."""
        return self._harmony.answer(prompt).take if self._harmony else list

    def decode(self, sequences: Sequence[Sequence[int]]) -> Sequence[str]:
        """Texts of all sequences in one call, which costs as much as one of them."""
        return list(self._tokenizer.decode([list(sequence) for sequence in sequences]))

    def _channels(self) -> Harmony | None:
        vocabulary = self._tokenizer.get_vocab()  # its tokens are bytes
        return harmony_of(lambda token: vocabulary.get(token.encode()), self._ids)

    def _ids(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return [int(token) for token in encoded.input_ids.data[0]]


def _last(error: Exception) -> str:
    """The last line of an error of OpenVINO, whose first ones name places in its own source."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1][:256]


class OpenVinoRuntime:
    """A Runtime: openvino_genai.ContinuousBatchingPipeline (2026.4)."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._vocabulary = 1 + max(pipeline.get_tokenizer().get_vocab().values())
        self._handles: dict[int, Any] = {}
        self._reporting: set[int] = set()
        """Requests that want log-probabilities."""

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Start from the model's own generation config: it knows what ends an answer."""
        import openvino as ov

        config = self._pipeline.get_config()
        config.max_new_tokens, config.do_sample = sampling.max_tokens, sampling.temperature > 0
        if config.do_sample:
            config.temperature = sampling.temperature
            config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        self._control(config, sampling.controls)
        if sampling.controls.logprobs is not None:
            self._reporting.add(number)
        ids = ov.Tensor(np.array([prompt], dtype=np.int64))
        self._handles[number] = self._pipeline.add_request(number, ids, config)

    def _control(self, config: Any, controls: Controls) -> None:
        """Set what the request controls; OpenVINO GenAI knows all of it but bad words and alternative tokens."""
        if config.do_sample:
            config.top_p = controls.top_p
            if controls.top_k:
                config.top_k = controls.top_k
        if controls.min_tokens:
            self._end_not_before(config, controls.min_tokens)
        for name in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
            setattr(config, name, getattr(controls, name))
        if controls.logprobs is not None:
            config.logprobs = 1  # 0 reports none; the model's own, before temperature, top_p and top_k
        if controls.json_schema:
            import openvino_genai as genai

            config.structured_output_config = genai.StructuredOutputConfig(json_schema=controls.json_schema)

    def _end_not_before(self, config: Any, tokens: int) -> None:
        """Only what the vocabulary has may end such an answer.

        OpenVINO GenAI writes to the logits of every end without a look at how many there are; the process dies of it.
        """
        ends = sorted(end for end in {config.eos_token_id, *config.stop_token_ids} if 0 <= end < self._vocabulary)
        if ends:
            config.stop_token_ids, config.min_new_tokens = set(), tokens
            config.set_eos_token_id(ends[0])
            config.stop_token_ids = set(ends)

    def step(self) -> list[Progress]:
        """One token for everyone, or a part of a long prompt."""
        self._pipeline.step()
        steps = [self._progress(number, handle) for number, handle in self._handles.items()]
        for step in steps:
            if step.finish_reason or step.failure:
                del self._handles[step.number]
                self._reporting.discard(step.number)
        return [step for step in steps if step.tokens or step.finish_reason or step.failure]

    def cancel(self, number: int) -> None:
        """The next step frees its part of the cache."""
        self._reporting.discard(number)
        self._handles.pop(number).cancel()

    def has_work(self) -> bool:
        """Whether a request runs or waits to be freed."""
        return bool(self._pipeline.has_non_finished_requests())

    def _progress(self, number: int, handle: Any) -> Progress:
        import openvino_genai as genai

        if handle.get_status() == genai.GenerationStatus.IGNORED:
            return Progress(number, (), failure="the engine has no room for this request. Ask for fewer tokens.")
        if not handle.can_read():
            return Progress(number, ())
        output = next(iter(handle.read().values()))
        stopped = output.finish_reason == genai.GenerationFinishReason.STOP
        tokens = output.generated_ids[: len(output.generated_ids) - stopped]
        reason = "stop" if stopped else "length" if output.finish_reason != genai.GenerationFinishReason.NONE else ""
        logprobs: list[TokenLogprob] = []
        if number in self._reporting:
            logprobs = [TokenLogprob(*pair) for pair in zip(tokens, output.generated_log_probs, strict=False)]
        return Progress(number, tokens, reason, logprobs=logprobs)
