"""Proves that the pipeline which will serve answers as the model does.

Paged attention with continuous batching is another computation than the one that quantize measured. What it does not
carry from step to step, such as the state of a mamba layer, shows from the second token on and nowhere before: with
openvino-genai 2026.4 it is the state of Granite 4 H and the positions of dense Granite 4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.foreign import refusing
from slipway.tasks.engines.checkpoint.perplexity import Logits
from slipway.tasks.engines.openvino.one_pass import one_pass

PROMPTS = ("1", "The quick brown fox jumps over the lazy dog, and the dog sleeps on.")
"""The prompts differ in length, as those of requests that are answered together do."""
TOKENS = 12
NEAR = 0.5
"""How far below the likeliest token one may be, in standard deviations of its position's logits: rounding and a cache
of 8 bit change which of two nearly equal ones wins. A token that the model did not choose is some deviations below."""


@dataclass(frozen=True)
class Answer:
    """What the pipeline generated greedily after a prompt."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def prove(engine: Path, scheduler: Mapping[str, Any], properties: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Generate with the pipeline that will serve, and judge each token by the same weights in one pass.

    Args:
        engine: the folder with IR and tokenizer.
        scheduler: fields of openvino_genai.SchedulerConfig.
        properties: of OpenVINO's CPU plugin.
        max_tokens: how long a sequence may be, with its prompt.

    Returns:
        `prompts`, and `tokens`, how many were compared.

    Raises:
        InputError: GenAI cannot run the engine, or does not generate what the model says.
    """
    with refusing(
        f"openvino-genai {version('openvino-genai')} cannot run the engine", "Choose an architecture that it supports."
    ):
        answers = _generated(engine, scheduler, properties, max_tokens)
    check_answers(answers, one_pass(engine))
    return {"prompts": list(PROMPTS), "tokens": sum(len(answer.tokens) for answer in answers)}


def check_answers(answers: Sequence[Answer], logits: Logits) -> None:
    """Refuse answers with a token that the model would not have chosen.

    Raises:
        InputError: the first such token, and how many of all there are.
    """
    far = [position for answer in answers for position in _far(answer, logits)]
    if far:
        total = sum(len(answer.tokens) for answer in answers)
        raise InputError(
            "the engine does not answer as its model does: continuous batching does not carry all of its state",
            found=f"{len(far)} of {total} tokens that the model would not have chosen, the first is token {far[0] + 1}",
            expected="the tokens of the model in one pass",
            remedy="Choose another model, or engine kind llmapi or vllm on a GPU.",
        )


def _far(answer: Answer, logits: Logits) -> list[int]:
    """Positions of the tokens that are far below the likeliest."""
    rows = logits([*answer.prompt, *answer.tokens])[len(answer.prompt) - 1 : -1]
    return [
        position
        for position, (row, token) in enumerate(zip(rows, answer.tokens, strict=True))
        if not row.max() - row[token] <= NEAR * row.std()
    ]


def _generated(
    engine: Path, scheduler: Mapping[str, Any], properties: Mapping[str, Any], max_tokens: int
) -> list[Answer]:
    import numpy as np
    import openvino
    import openvino_genai as genai

    settings = genai.SchedulerConfig()
    for name, value in scheduler.items():
        setattr(settings, name, value)
    pipeline = genai.ContinuousBatchingPipeline(str(engine), settings, "CPU", dict(properties))
    tokenizer = pipeline.get_tokenizer()
    prompts = [tokenizer.encode(prompt).input_ids.data[0].tolist()[: max(1, max_tokens - TOKENS)] for prompt in PROMPTS]
    handles = []
    for number, prompt in enumerate(prompts):
        config = genai.GenerationConfig(max_new_tokens=min(TOKENS, max_tokens - len(prompt)), ignore_eos=True)
        handles.append(pipeline.add_request(number, openvino.Tensor(np.array([prompt], dtype=np.int64)), config))
    tokens: list[list[int]] = [[] for _ in prompts]
    while pipeline.has_non_finished_requests():
        pipeline.step()
        for number, handle in enumerate(handles):
            if handle.can_read():
                tokens[number] += next(iter(handle.read().values())).generated_ids
    return [Answer(tuple(prompt), tuple(answer)) for prompt, answer in zip(prompts, tokens, strict=True)]
