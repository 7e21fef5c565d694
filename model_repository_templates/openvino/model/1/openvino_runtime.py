"""OpenVINO GenAI's continuous batching as a Runtime."""

import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from generation.runtime import Controls, Progress, Sampling, TokenLogprob
from prompt_scores import PromptScorer, PromptScores

MOST_MIN_P = 1 - 2.0**-24
"""OpenVINO GenAI takes min_p below 1 only: the largest such number of 32 bits."""


def load(
    engine: Path,
    scheduler: Mapping[str, Any],
    properties: Mapping[str, Any],
    scores_prompts: bool,
) -> "OpenVinoRuntime":
    """Load the engine; `scheduler` are fields of SchedulerConfig, `properties` those of OpenVINO's CPU plugin.

    With `scores_prompts` it is loaded a second time, for the log-probabilities of prompts.
    """
    import openvino_genai as genai

    config = genai.SchedulerConfig()
    for name, value in scheduler.items():
        setattr(config, name, value)
    pipeline = genai.ContinuousBatchingPipeline(str(engine), config, "CPU", dict(properties))
    return OpenVinoRuntime(pipeline, PromptScorer(engine, properties) if scores_prompts else None)


class OpenVinoRuntime:
    """A Runtime: openvino_genai.ContinuousBatchingPipeline (2026.4)."""

    def __init__(self, pipeline: Any, scorer: PromptScorer | None = None) -> None:
        self._pipeline, self._scorer = pipeline, scorer
        self._vocabulary = 1 + max(pipeline.get_tokenizer().get_vocab().values())
        self._end: int = pipeline.get_tokenizer().get_eos_token_id()
        self._handles: dict[int, Any] = {}
        self._reporting: set[int] = set()
        """Requests that want log-probabilities."""
        self._to_score: deque[tuple[int, Sampling, PromptScores]] = deque()
        self._scored: dict[int, PromptScores] = {}

    @property
    def max_new_tokens(self) -> int:
        """What an answer has at most, by the model's own generation config."""
        return int(self._pipeline.get_config().max_new_tokens)

    def add(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Begin the answer, or first what the prompt's log-probabilities are."""
        if self._scorer is not None and sampling.controls.prompt_logprobs is not None:
            scores = self._scorer.begin(prompt, sampling.controls.prompt_logprobs)
            self._to_score.append((number, sampling, scores))
        else:
            self._begin(number, prompt, sampling)

    def _begin(self, number: int, prompt: Sequence[int], sampling: Sampling) -> None:
        """Take from the model's own generation config what ends an answer; a request states all else."""
        import openvino as ov

        config = self._ended_as_the_model_says()
        config.max_new_tokens, config.do_sample = sampling.max_tokens, sampling.temperature > 0
        if config.do_sample:
            config.temperature = sampling.temperature
            config.rng_seed = secrets.randbits(32) if sampling.seed is None else sampling.seed
        self._control(config, sampling.controls)
        if sampling.controls.logprobs is not None:
            self._reporting.add(number)
        ids = ov.Tensor(np.array([prompt], dtype=np.int64))
        self._handles[number] = self._pipeline.add_request(number, ids, config)

    def _ended_as_the_model_says(self) -> Any:
        """A generation config with GenAI's defaults: the model's may ask for beams, which end the pipeline.

        The tokenizer's own end counts beside those of the model's, of which GenAI takes either.
        """
        import openvino_genai as genai

        own, config = self._pipeline.get_config(), genai.GenerationConfig()
        own_end = {self._end} if self._end >= 0 else set()
        config.eos_token_id, config.stop_token_ids = own.eos_token_id, own.stop_token_ids | own_end
        return config

    def _control(self, config: Any, controls: Controls) -> None:
        """Set what the request controls; OpenVINO GenAI knows all of it but bad words and alternative tokens."""
        if config.do_sample:
            config.top_p, config.min_p = controls.top_p, min(controls.min_p, MOST_MIN_P)
            if controls.top_k:
                config.top_k = controls.top_k
        config.ignore_eos = controls.ignore_eos
        if controls.min_tokens and not controls.ignore_eos:
            self._end_not_before(config, controls.min_tokens)
        for name in ("presence_penalty", "frequency_penalty", "repetition_penalty"):
            setattr(config, name, getattr(controls, name))
        if controls.logprobs is not None:
            config.logprobs = 1  # 0 reports none; the model's own, before temperature, top_p and top_k
        if controls.grammar:
            import openvino_genai as genai

            config.structured_output_config = genai.StructuredOutputConfig(grammar=controls.grammar)

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
        """One token for everyone, or a part of a long prompt; and a part of one that is scored."""
        self._score()
        if self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        steps = [self._progress(number, handle) for number, handle in self._handles.items()]
        for step in steps:
            if step.finish_reason or step.failure:
                del self._handles[step.number]
                self._reporting.discard(step.number)
                self._scored.pop(step.number, None)
        return [step for step in steps if step.tokens or step.finish_reason or step.failure]

    def cancel(self, number: int) -> None:
        """The next step frees its part of the cache."""
        self._reporting.discard(number)
        self._scored.pop(number, None)
        self._to_score = deque(waiting for waiting in self._to_score if waiting[0] != number)
        if handle := self._handles.pop(number, None):  # its last token may have been on its way
            handle.cancel()

    def has_work(self) -> bool:
        """Whether a request runs or waits to be freed."""
        return bool(self._to_score) or bool(self._pipeline.has_non_finished_requests())

    def _score(self) -> None:
        """Read a part of the prompt that is scored; the answer begins once all of it has been read."""
        if self._to_score:
            number, sampling, scores = self._to_score[0]
            if scores.advance():
                self._to_score.popleft()
                self._scored[number] = scores
                self._begin(number, scores.prompt, sampling)

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
        if scores := self._scored.pop(number, None):  # they come with the answer's first token
            return Progress(number, tokens, reason, "", [*map(scores.next, tokens[:1]), *logprobs[1:]], scores.found)
        return Progress(number, tokens, reason, logprobs=logprobs)
