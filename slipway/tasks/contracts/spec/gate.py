"""The `gate` section of a spec: questions, load and limits that decide whether a candidate is promoted."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slipway.tasks.contracts.base import UserDocument
from slipway.tasks.contracts.engine.sampling import SamplingParameters
from slipway.tasks.contracts.spec.harness import Harness
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.spec.question import QUESTION_TOKENS, Matching, SmokeQuestion
from slipway.tasks.contracts.spec_fields import (
    MAX_EXPECTATIONS,
    MAX_LEVELS,
    MAX_QUESTIONS,
    MAX_REQUEST_S,
    MAX_REQUESTS,
    MAX_TOKENS,
    MAX_WAIT_S,
    PLAIN_ANSWER_TOKENS,
    AnswerTokens,
    HubFileUri,
    Limit,
    Milliseconds,
    Ratio,
    TemplateArguments,
    Tokens,
)

Metric = Literal[
    "answer_accuracy",
    "empty_rate",
    "repetition_rate",
    "truncated_rate",
    "smoke_accuracy",
    "error_rate",
    "ttft_ms",
    "itl_ms",
    "latency_ms",
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "cost_per_million_tokens",
    "perplexity",
    "kl_divergence",
]
UNIT_COST: Metric = "cost_per_million_tokens"
PER_REQUEST_METRICS: frozenset[str] = frozenset({"ttft_ms", "itl_ms", "latency_ms"})
PER_LEVEL_METRICS: frozenset[str] = PER_REQUEST_METRICS | {
    "error_rate",
    "output_tokens_per_s",
    "requests_per_s",
    "goodput_per_s",
    "cost_per_million_tokens",
}
"""Metrics of the load test: one value at each level of load. The others are for the release as a whole."""
OF_QUALITY: frozenset[str] = frozenset({"answer_accuracy", "empty_rate", "repetition_rate", "truncated_rate"})
"""Metrics of the answers to gate.quality.dataset."""
OF_TEXTS: frozenset[str] = frozenset({"perplexity", "kl_divergence"})
"""Metrics over the texts of gate.quality.perplexity."""
COMPARED_WITH_LIVE: frozenset[str] = PER_LEVEL_METRICS - {"error_rate", "cost_per_million_tokens"}


Concurrency = Annotated[int, Field(ge=1, le=1024)]
RequestRate = Annotated[float, Field(ge=0.01, le=1000)]

BUDGET_S = 1800.0
"""Default of gate.benchmark.budget_s."""


class Quality(SamplingParameters, Matching):
    """Questions with known answers, sent to the candidate through its Service. Parameters are those of every question.

    A line of the dataset may set what a smoke question may set, apart from `lora`.
    """

    dataset: HubFileUri = Field(
        description='JSONL on the Hub, one {"prompt": str, "answer": str} per line, and "history", "match", '
        '"min_similarity", "max_tokens", "chat_template_kwargs" and sampling parameters as of smoke, which override '
        "those of quality"
    )
    max_tokens: AnswerTokens | None = QUESTION_TOKENS
    chat_template_kwargs: TemplateArguments = Field(
        default_factory=dict, description="override those of engine.chat_template_kwargs, for every question"
    )
    perplexity: HubFileUri | None = Field(
        default=None,
        description='JSONL, one {"text": str} per line, for perplexity of source and quantize output, '
        "and the divergence of their next-token chances",
    )


class Goodput(UserDocument):
    """The service level a request must meet to count as good. Absent limits are not checked."""

    ttft_ms: Milliseconds | None = None
    itl_ms: Milliseconds | None = None
    latency_ms: Milliseconds | None = None


class LoadPrompts(UserDocument):
    """What the load test asks: lines of a dataset, or made-up prompts at lengths of a normal distribution."""

    dataset: HubFileUri | None = Field(
        default=None, description='JSONL on the Hub, one {"prompt": str} per line; "max_tokens" is optional'
    )
    input_tokens: Tokens | None = Field(
        default=None, description="mean length of made-up prompts, in tokens of the model, without a chat template's"
    )
    input_tokens_stddev: float = Field(default=0.0, ge=0, le=MAX_TOKENS)
    output_tokens: AnswerTokens | None = Field(
        default=None,
        description="mean length of answers in place of max_tokens; shorter where the model ends one "
        "and its engine kind does not obey min_tokens",
    )
    output_tokens_stddev: float = Field(default=0.0, ge=0, le=MAX_TOKENS)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.dataset is None) == (self.input_tokens is None):
            raise ValueError("prompts: give exactly one of dataset and input_tokens")
        for name in ("input_tokens", "output_tokens"):
            if getattr(self, name) is None and getattr(self, f"{name}_stddev"):
                raise ValueError(f"prompts: {name}_stddev needs {name}, the mean")
        return self


class Benchmark(UserDocument):
    """The load that candidate and live release are measured under."""

    concurrency: tuple[Concurrency, ...] = Field(
        default=(1, 4, 8),
        max_length=MAX_LEVELS,
        description="levels of a closed loop: so many clients, each of which sends its next request after an answer",
    )
    request_rate: tuple[RequestRate, ...] = Field(
        default=(),
        max_length=MAX_LEVELS,
        description="levels of an open loop: requests per second on average, at the times of a Poisson process, "
        "whatever became of those before; latencies count from the time at which a request was due",
    )
    requests: int = Field(default=64, ge=1, le=MAX_REQUESTS, description="measured requests per level")
    max_requests: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REQUESTS,
        description="when set, a level goes on after `requests` until every comparison with live is decided, "
        "or until it has this many; when absent it ends after `requests`",
    )
    budget_s: float = Field(
        default=BUDGET_S,
        gt=0,
        le=MAX_WAIT_S,
        description="with max_requests, seconds after which no level goes on; each one gets its `requests` in any case",
    )
    warmup: int = Field(
        default=8, ge=0, le=MAX_REQUESTS, description="requests per level that are sent but not counted"
    )
    max_tokens: AnswerTokens = PLAIN_ANSWER_TOKENS
    prompts: LoadPrompts | None = Field(
        default=None, description="when absent, prompts of gate.quality.dataset, or of gate.smoke where there is none"
    )
    request_timeout_s: float = Field(default=30.0, gt=0, le=MAX_REQUEST_S)
    goodput: Goodput = Goodput()

    @property
    def levels(self) -> tuple[LoadLevel, ...]:
        """Every level, in the order in which they are measured."""
        closed = [LoadLevel(concurrency=number) for number in self.concurrency]
        return (*closed, *(LoadLevel(request_rate=rate) for rate in self.request_rate))

    @model_validator(mode="after")
    def _has_a_level(self) -> Self:
        if not self.levels:
            raise ValueError("no level of load: give concurrency, request_rate or both")
        return self

    @model_validator(mode="after")
    def _can_go_on(self) -> Self:
        if self.max_requests is not None and self.max_requests < self.requests:
            raise ValueError(f"max_requests {self.max_requests} is below requests {self.requests}")
        if self.max_requests is None and "budget_s" in self.model_fields_set and self.budget_s != BUDGET_S:
            raise ValueError("budget_s limits how long a benchmark with max_requests goes on: set max_requests as well")
        return self


class Expectation(UserDocument):
    """One line of the gate: a metric and exactly one limit.

    An absolute limit is `at_most` or `at_least`. A relative one, `at_most_ratio` or `at_least_ratio`, divides by the
    same metric of `of`: the live release under the same load, or the unquantized source. Per-request metrics are judged
    at a `quantile`. Metrics of the load test are judged at each level, or at that of `concurrency` or `request_rate`.
    """

    metric: Metric
    quantile: float | None = Field(default=None, gt=0, lt=1)
    concurrency: Concurrency | None = None
    request_rate: RequestRate | None = None
    at_most: Limit | None = None
    at_least: Limit | None = None
    at_most_ratio: Ratio | None = None
    at_least_ratio: Ratio | None = None
    of: Literal["live", "source"] | None = None
    min_count: int = Field(default=1, ge=1, le=2**31, description="fewer samples make the line inconclusive")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = {
            name: value
            for name in ("at_most", "at_least", "at_most_ratio", "at_least_ratio")
            if (value := getattr(self, name)) is not None
        }
        if len(limits) != 1:
            raise ValueError(
                f"{self.metric}: give exactly one of at_most, at_least, at_most_ratio, at_least_ratio, "
                f"found {sorted(limits) or 'none'}"
            )
        relative = next(iter(limits)).endswith("_ratio")
        if relative != (self.of is not None):
            raise ValueError(f"{self.metric}: set `of` (live or source) for a ratio, and only for a ratio")
        if self.of == "source" and self.metric != "perplexity":
            raise ValueError(f"{self.metric} is not measured for the source; only perplexity is")
        if self.of == "live" and self.metric not in COMPARED_WITH_LIVE:
            raise ValueError(f"{self.metric} is not compared with live; {', '.join(sorted(COMPARED_WITH_LIVE))} are")
        return self

    @model_validator(mode="after")
    def _costs_have_an_upper_limit(self) -> Self:
        if self.metric == UNIT_COST and self.at_most is None:
            raise ValueError(f"{self.metric} is limited by at_most: no release is too cheap")
        return self

    @model_validator(mode="after")
    def _quantile_of_requests_only(self) -> Self:
        if (self.metric in PER_REQUEST_METRICS) != (self.quantile is not None):
            raise ValueError(
                f"{self.metric}: set quantile for {', '.join(sorted(PER_REQUEST_METRICS))}, and for no other metric"
            )
        return self

    @model_validator(mode="after")
    def _at_one_level_or_all(self) -> Self:
        levels = [name for name in ("concurrency", "request_rate") if getattr(self, name) is not None]
        if len(levels) > 1:
            raise ValueError(f"{self.metric}: give concurrency or request_rate, or neither for every level")
        if levels and self.metric not in PER_LEVEL_METRICS:
            raise ValueError(f"{self.metric} is measured once per release: remove {levels[0]}")
        return self

    @property
    def level(self) -> LoadLevel | None:
        """The only level that it is judged at; None: every one."""
        if self.concurrency is None and self.request_rate is None:
            return None
        return LoadLevel(self.concurrency, self.request_rate)

    @property
    def limit(self) -> float:
        """The one limit that is set."""
        return next(v for v in (self.at_most, self.at_least, self.at_most_ratio, self.at_least_ratio) if v is not None)

    @property
    def is_upper(self) -> bool:
        """Whether the limit is an upper one."""
        return self.at_most is not None or self.at_most_ratio is not None


class Gate(UserDocument):
    """What a candidate must prove. Absent, thin or non-finite data is never a pass."""

    smoke: tuple[SmokeQuestion, ...] = Field(min_length=1, max_length=MAX_QUESTIONS)
    quality: Quality | None = None
    benchmark: Benchmark = Benchmark()
    harness: Harness | None = Field(default=None, description="tasks of lm-evaluation-harness; absent: none are run")
    expect: tuple[Expectation, ...] = Field(min_length=1, max_length=MAX_EXPECTATIONS)

    @model_validator(mode="after")
    def _expectations_have_their_data(self) -> Self:
        for line in self.expect:
            if line.metric in OF_QUALITY and self.quality is None:
                raise ValueError(f"{line.metric} needs gate.quality.dataset")
            if line.metric in OF_TEXTS and (self.quality is None or self.quality.perplexity is None):
                raise ValueError(f"{line.metric} needs gate.quality.perplexity")
            if line.level is not None and line.level not in self.benchmark.levels:
                measured = ", ".join(map(str, self.benchmark.levels))
                raise ValueError(f"{line.metric} is limited at {line.level}, but the benchmark measures {measured}")
        return self
