"""The requests of a load test: prompts of a dataset, or made up at the lengths of a distribution."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from slipway.tasks.adapters.triton.generate_request import GenerateRequest
from slipway.tasks.adapters.triton.tokens import TokenCounter
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.gate import LoadPrompts
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import MAX_ANSWER_TOKENS

MADE_UP = 1000
"""Different prompts that are made up; a longer load test sends them again."""
TEMPLATE_TOKENS = 64
"""Room that made-up prompts leave for what the chat template puts around them."""


def load_requests(
    spec: ReleaseSpec, lines: Sequence[Mapping[str, Any]] | None, counter: TokenCounter
) -> list[GenerateRequest]:
    """What the load test sends, in turn, again and again.

    Args:
        spec: the release's.
        lines: of the dataset that the prompts come from: `gate.benchmark.prompts.dataset`, else that of gate.quality;
            None: there is none, so the prompts are those of gate.smoke, or made up.
        counter: has the release's tokenizer.

    Raises:
        InputError: a line of the dataset is wrong, or the tokenizer has no words to make prompts of.
    """
    source = spec.gate.benchmark.prompts
    if source is None:
        prompts = (
            [question.prompt for question in spec.gate.smoke] if lines is None else [line["prompt"] for line in lines]
        )
        return [GenerateRequest(str(prompt), spec.gate.benchmark.max_tokens) for prompt in prompts]
    dice = random.Random(f"{source.input_tokens} {source.output_tokens}")  # noqa: S311 - lengths and words, no secret
    if source.input_tokens is None:
        requests = requests_of_lines(source, lines or (), spec.gate.benchmark.max_tokens)
    else:
        longest = max(1, spec.engine.max_input_tokens - TEMPLATE_TOKENS)
        lengths = [_drawn(dice, source.input_tokens, source.input_tokens_stddev, longest) for _ in range(MADE_UP)]
        requests = [GenerateRequest(text, spec.gate.benchmark.max_tokens) for text in counter.made_up(lengths, dice)]
    if source.output_tokens is None:
        return requests
    tokens = [
        _drawn(dice, source.output_tokens, source.output_tokens_stddev, spec.engine.answer_room) for _ in requests
    ]
    exact = "min_tokens" in spec.engine.traits.sampling
    return [
        GenerateRequest(request.prompt, count, sampling={"min_tokens": count} if exact else {})
        for request, count in zip(requests, tokens, strict=True)
    ]


def requests_of_lines(
    source: LoadPrompts, lines: Sequence[Mapping[str, Any]], max_tokens: int
) -> list[GenerateRequest]:
    """A request for each line of gate.benchmark.prompts.dataset.

    Raises:
        InputError: the dataset is empty, or a line has no prompt or a `max_tokens` that is no number of tokens.
    """
    if not lines:
        raise InputError(f"dataset {source.dataset} of the load test is empty", remedy="Give a dataset with prompts.")
    return [_request(number, line, source, max_tokens) for number, line in enumerate(lines, 1)]


def _request(number: int, line: Mapping[str, Any], prompts: LoadPrompts, max_tokens: int) -> GenerateRequest:
    prompt, tokens = line.get("prompt"), line.get("max_tokens", max_tokens)
    wrong_prompt = not isinstance(prompt, str) or not prompt
    wrong_tokens = not isinstance(tokens, int) or isinstance(tokens, bool) or not 0 < tokens <= MAX_ANSWER_TOKENS
    if wrong_prompt or wrong_tokens:
        raise InputError(
            f"line {number} of dataset {prompts.dataset} of the load test is wrong",
            found=f"{'prompt' if wrong_prompt else 'max_tokens'} {prompt if wrong_prompt else tokens!r}"[:200],
            expected=f'{{"prompt": str}} on each line; "max_tokens", 1 to {MAX_ANSWER_TOKENS}, is optional',
            remedy="Correct the dataset.",
        )
    return GenerateRequest(str(prompt), int(tokens))


def _drawn(dice: random.Random, mean: float, stddev: float, longest: int) -> int:
    return min(longest, max(1, round(dice.gauss(mean, stddev))))
