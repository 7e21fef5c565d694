"""The rows of a load test, one for each request, and the metrics over them. Pure arithmetic.

Definitions are those of NVIDIA AIPerf 0.13 (docs.nvidia.com/aiperf, metrics reference):

    TTFT                      first content response - request start
    request latency           last content response - request start
    ITL                       (latency - TTFT) / (output tokens - 1), for answers of two tokens or more
    output token throughput   sum of output tokens / duration
    request throughput        good and bad requests that ended / duration, here: requests that succeeded / duration
    goodput                   requests that meet every service level / duration

At a request rate a request starts when it was due: one that the load generator sent late, or that waited for a server
that fell behind, has waited since then. The duration of a level is from its first request's start to its last response.
Output tokens are counted by the release's own tokenizer over the whole answer, so that a chunk of several tokens is not
counted as one.
"""

import gzip
import math
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from slipway.tasks.contracts.base import Contract, canonical_json
from slipway.tasks.contracts.spec.answer_text import ends_in_a_loop, is_empty
from slipway.tasks.contracts.spec.gate import Goodput
from slipway.tasks.contracts.spec.load_level import LoadLevel

Target = Literal["candidate", "live"]


class RequestRow(Contract):
    """One measured request. Times are monotonic seconds since the benchmark began."""

    target: Target
    concurrency: int | None = None
    request_rate: float | None = None
    batch: int = Field(ge=0, description="which of the level's interleaved runs: candidate and live alternate")
    prompt: str
    ok: bool
    error: str = ""
    due_s: float | None = Field(default=None, description="when a request rate had it sent; null at a concurrency")
    start_s: float = Field(description="when it was sent")
    first_token_s: float | None = None
    last_token_s: float | None = None
    output_tokens: int = Field(default=0, ge=0)
    chunks: int | None = Field(
        default=None, ge=0, description="responses with text; null in documents of version 0.1 and before"
    )

    @property
    def level(self) -> LoadLevel:
        """The level of load that it was part of."""
        return LoadLevel(self.concurrency, self.request_rate)

    @property
    def asked_s(self) -> float:
        """When its client began to wait."""
        return self.start_s if self.due_s is None else self.due_s

    @property
    def ttft_ms(self) -> float | None:
        """Time to first token."""
        return None if self.first_token_s is None else (self.first_token_s - self.asked_s) * 1e3

    @property
    def latency_ms(self) -> float | None:
        """Time to the last content response."""
        return None if self.last_token_s is None else (self.last_token_s - self.asked_s) * 1e3

    @property
    def itl_ms(self) -> float | None:
        """Mean time between output tokens; None below two tokens."""
        if self.ttft_ms is None or self.latency_ms is None or self.output_tokens < 2:  # noqa: PLR2004
            return None
        return (self.latency_ms - self.ttft_ms) / (self.output_tokens - 1)

    def meets(self, level: Goodput) -> bool:
        """Whether the request succeeded within every limit that is set.

        An answer too short to have an inter-token latency meets any limit on it.
        """
        measured = {"ttft_ms": self.ttft_ms, "itl_ms": self.itl_ms or 0.0, "latency_ms": self.latency_ms}
        limits = {name: limit for name, limit in level.model_dump().items() if limit is not None}
        return self.ok and all((value := measured[name]) is not None and value <= limits[name] for name in limits)


GZIP = b"\x1f\x8b"


def packed(rows: Iterable[RequestRow]) -> bytes:
    """The rows as compressed JSON lines (docs/decisions/0037); the same rows are the same bytes."""
    lines = b"".join(canonical_json(row.model_dump(mode="json")) + b"\n" for row in rows)
    return gzip.compress(lines, mtime=0)


def unpacked(data: bytes) -> list[RequestRow]:
    """The rows of `packed`, or of plain JSON lines, which versions until 0.1 stored."""
    lines = gzip.decompress(data) if data.startswith(GZIP) else data
    return [RequestRow.model_validate_json(line) for line in lines.splitlines() if line]


Flaw = Literal["empty", "loops", "cut off"]
CUT = "length"
"""Finish reason of an answer that the token limit ended."""


class AnswerRow(Contract):
    """One question with a known answer, sent through the Service."""

    suite: Literal["smoke", "quality"]
    prompt: str
    lora: str | None = Field(default=None, description="adapter that answered; absent: the model itself")
    expected: str
    answer: str
    ok: bool
    error: str = ""
    finish_reason: str = Field(default="", description="as the server says: stop, length or another; empty: not said")

    @property
    def flaws(self) -> tuple[Flaw, ...]:
        """What is wrong with the answer, whatever was expected; nothing where there was an error in place of one."""
        if self.error:
            return ()
        applies_by_flaw: dict[Flaw, bool] = {
            "empty": is_empty(self.answer),
            "loops": ends_in_a_loop(self.answer),
            "cut off": self.finish_reason == CUT,
        }
        return tuple(flaw for flaw, applies in applies_by_flaw.items() if applies)


MAX_CLIENT_BUSY = 0.8
"""Share of its CPU above which the load generator is the limit: its threads share one interpreter and wait for it."""
MAX_CLIENT_CHUNKS = 1.0
"""Chunks a second, of those that the load generator can stamp as they arrive, above which its times are its own."""
MAX_CLIENT_LATE = 0.1
"""Share of the time to first token before a request was sent at all above which the load generator is the limit."""


class LevelSummary(Contract):
    """One target at one level of concurrency. Percentiles are over requests that succeeded; None: no data."""

    target: Target
    concurrency: int | None = None
    request_rate: float | None = None
    requests: int
    errors: int
    duration_s: float
    error_rate: float
    requests_per_s: float
    output_tokens_per_s: float
    goodput_per_s: float
    percentiles: dict[str, dict[str, float | None]] = Field(description="metric -> p50, p90, p95, p99 in ms")
    client_busy: float | None = Field(
        default=None, ge=0, description="share of its time in which the load generator itself computed; null: not known"
    )

    client_late: float | None = Field(
        default=None, ge=0, description="share of the time to first token before requests were sent; null: closed loop"
    )
    chunks_per_s: float | None = Field(default=None, ge=0, description="responses with text; null: not counted")
    client_chunks_per_s: float | None = Field(
        default=None, gt=0, description="how many of them the load generator can stamp as they arrive; null: not known"
    )
    client_processes: int = Field(default=1, ge=1, description="processes of the load generator")

    @property
    def client_chunks(self) -> float | None:
        """Chunks that arrived, as a share of those that the load generator can stamp; None: not known."""
        if self.chunks_per_s is None or self.client_chunks_per_s is None:
            return None
        return self.chunks_per_s / self.client_chunks_per_s

    @property
    def level(self) -> LoadLevel:
        """The level of load."""
        return LoadLevel(self.concurrency, self.request_rate)

    def measured(self, metric: str, quantile: float | None = None) -> float | None:
        """A rate, or with a `quantile` from 0 to 1 a percentile of a time in ms; None: not measured."""
        if quantile is not None:
            return self.percentiles.get(metric, {}).get(f"p{quantile * 100:g}")
        rate: float | None = getattr(self, metric, None)
        return rate


PERCENTILES = (50, 90, 95, 99)


def values(rows: Iterable[RequestRow], metric: str) -> list[float]:
    """A per-request metric of the rows that succeeded and have it."""
    return [value for row in rows if row.ok and (value := getattr(row, metric)) is not None]


def percentile(numbers: Sequence[float], percent: float) -> float | None:
    """Linear interpolation between closest ranks, as numpy's default. None without numbers.

    Args:
        numbers: in any order.
        percent: 0 to 100.
    """
    if not numbers:
        return None
    ordered = sorted(numbers)
    rank = (len(ordered) - 1) * percent / 100
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def summarize(rows: Sequence[RequestRow], goodput: Goodput) -> LevelSummary:
    """Summary of the rows of one target at one level. Rates add up the durations of the level's batches.

    Raises:
        ValueError: no rows.
    """
    if not rows:
        raise ValueError("no rows to summarize")
    duration_s = sum(_duration_s([row for row in rows if row.batch == batch]) for batch in {row.batch for row in rows})
    good = [row for row in rows if row.ok]

    def per_second(count: float) -> float:
        return count / duration_s if duration_s > 0 else 0.0

    return LevelSummary(
        target=rows[0].target,
        concurrency=rows[0].concurrency,
        request_rate=rows[0].request_rate,
        requests=len(rows),
        errors=len(rows) - len(good),
        duration_s=duration_s,
        error_rate=(len(rows) - len(good)) / len(rows),
        requests_per_s=per_second(len(good)),
        output_tokens_per_s=per_second(sum(row.output_tokens for row in good)),
        goodput_per_s=per_second(sum(row.meets(goodput) for row in rows)),
        percentiles={
            metric: {f"p{percent}": percentile(values(rows, metric), percent) for percent in PERCENTILES}
            for metric in ("ttft_ms", "itl_ms", "latency_ms")
        },
        client_late=lateness(rows),
        chunks_per_s=None
        if any(row.ok and row.chunks is None for row in rows)
        else per_second(sum(row.chunks or 0 for row in good)),
    )


def lateness(rows: Iterable[RequestRow]) -> float | None:
    """Share of the time to first token that passed before requests were sent; None where none was due at a time."""
    due = [row for row in rows if row.due_s is not None and row.ttft_ms is not None]
    waited_s = sum((row.ttft_ms or 0.0) / 1e3 for row in due)
    return sum(max(0.0, row.start_s - row.asked_s) for row in due) / waited_s if waited_s > 0 else None


def _duration_s(batch: Sequence[RequestRow]) -> float:
    ends = [row.last_token_s if row.last_token_s is not None else row.start_s for row in batch]
    return max(ends) - min(row.asked_s for row in batch)
