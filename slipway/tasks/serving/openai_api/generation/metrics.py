"""What OpenAI's API counts of its answers: requests, tokens, time to the first token and between tokens. Pure.

One event loop counts, so nothing is locked.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from slipway.tasks.contracts.wire.exposition import Metric, Sample
from slipway.tasks.serving.openai_api.answers.openai import Piece

FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
BETWEEN_TOKENS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@dataclass
class Histogram:
    """Observations by upper bound, in seconds."""

    bounds: tuple[float, ...]
    total: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count `times` observations of `seconds` each."""
        self.counts[bisect_left(self.bounds, seconds)] += times
        self.total += seconds * times

    def samples(self, labels: dict[str, str]) -> list[Sample]:
        """Cumulative buckets, sum and count."""
        found, below = [], 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append(Sample(below, {**labels, "le": bound}, "_bucket"))
        return [*found, Sample(self.total, labels, "_sum"), Sample(below, labels, "_count")]


@dataclass
class AnswerMetrics:
    """Counts of one process, by model and client; a client without a key is ""."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    prompt_tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    generation_tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[str, Histogram] = field(default_factory=dict)
    between: dict[str, Histogram] = field(default_factory=dict)

    def first_tokens(self, model: str, seconds: float, _: int) -> None:
        """Count the time from a request's arrival to its first text, however many pieces that has."""
        self.first.setdefault(model, Histogram(FIRST_TOKEN_S)).observe(seconds)

    def next_tokens(self, model: str, seconds: float, pieces: int) -> None:
        """Count the time since the previous text, shared out over the pieces that arrived together."""
        self.between.setdefault(model, Histogram(BETWEEN_TOKENS_S)).observe(seconds / pieces, pieces)

    def count_tokens(self, model: str, client: str, pieces: Sequence[Piece]) -> None:
        """Count the tokens that the model's own counts tell of."""
        for each in pieces:
            self.prompt_tokens[model, client] += each.prompt_tokens or 0
            self.generation_tokens[model, client] += each.completion_tokens or 0

    def metrics(self) -> list[Metric]:
        """Everything counted so far."""
        by_model = (
            ("prompt_tokens", "Tokens of prompts that were answered.", self.prompt_tokens),
            ("generation_tokens", "Tokens of answers.", self.generation_tokens),
        )
        times = (
            ("time_to_first_token", "Time from a request's arrival to its first text.", self.first),
            (
                "inter_token_latency",
                "Time between two pieces of an answer's text, one token each unless a model holds text back.",
                self.between,
            ),
        )
        return [
            Metric(
                "slipway_openai_requests_total",
                "counter",
                "Requests for an answer, by HTTP status; 499 is a client that left.",
                tuple(
                    Sample(count, {**_labels(model, client), "code": str(code)})
                    for (model, client, code), count in sorted(self.requests.items())
                ),
            ),
            *(
                Metric(
                    f"slipway_openai_{name}_total",
                    "counter",
                    description,
                    tuple(Sample(count, _labels(*key)) for key, count in sorted(counts.items())),
                )
                for name, description, counts in by_model
            ),
            *(
                Metric(
                    f"slipway_openai_{name}_seconds",
                    "histogram",
                    description,
                    tuple(sample for model in sorted(found) for sample in found[model].samples({"model": model})),
                )
                for name, description, found in times
            ),
        ]


def _labels(model: str, client: str) -> dict[str, str]:
    return {"model": model, "client": client} if client else {"model": model}
