"""Renders the evidence of a run as one HTML page without scripts or external resources, with charts as inline SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from slipway.tasks.adapters.judge.comparison import of_texts
from slipway.tasks.contracts import html_pages
from slipway.tasks.contracts.measured.evidence import Evidence
from slipway.tasks.contracts.measured.gate import GateReport, interval_words
from slipway.tasks.contracts.measured.measurement import Flaw, LevelSummary, Target
from slipway.tasks.contracts.spec.gate import Expectation
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.stored.release import Release

DIVERGENCE = Expectation(metric="kl_divergence", at_most=0)
TEMPLATE = Path(__file__).with_name("report.html.j2")
PLOT_WIDTH, PLOT_HEIGHT = 460.0, 190.0
LEFT, TOP = 58.0, 12.0
TICKS = 4  # approximately, because a tick is a round number
WRONG_ANSWERS_SHOWN = 20


@dataclass(frozen=True)
class Mark:
    """One measured value in a chart: its position and the end of its whisker in pixels, and its label."""

    x: float
    y: float
    y_high: float
    label: str


@dataclass(frozen=True)
class Chart:
    """A small chart: one mark for each target and level of load. All positions are in pixels."""

    title: str
    unit: str
    note: str
    axis: str
    ticks: tuple[tuple[float, str], ...]
    levels: tuple[tuple[float, str], ...]
    series: tuple[tuple[Target, tuple[Mark, ...]], ...]
    width: float = LEFT + PLOT_WIDTH + 16
    height: float = TOP + PLOT_HEIGHT + 40
    left: float = LEFT
    right: float = LEFT + PLOT_WIDTH
    bottom: float = TOP + PLOT_HEIGHT


def render(release: Release, report: GateReport, evidence: Evidence, summaries: Sequence[LevelSummary]) -> str:
    """Render the page. Every value is escaped, so that a model's answer cannot become markup."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    wrong = [row for row in evidence.answers if not row.ok]
    return environment.from_string(TEMPLATE.read_text()).render(
        policy=html_pages.POLICY,
        release=release,
        report=report,
        interval_words=interval_words,
        charts=charts(summaries),
        answers=evidence.answers,
        wrong=wrong[:WRONG_ANSWERS_SHOWN],
        flawed=[(flaw, sum(flaw in row.flaws for row in evidence.answers)) for flaw in get_args(Flaw)],
        more_wrong=max(0, len(wrong) - WRONG_ANSWERS_SHOWN),
        summaries=summaries,
        perplexity=evidence.perplexity,
        source_perplexity=evidence.source_perplexity,
        divergence=of_texts(DIVERGENCE, evidence.texts) if evidence.texts else None,
        harness=evidence.harness,
    )


def charts(summaries: Sequence[LevelSummary]) -> list[Chart]:
    """Charts of throughput and time to first token by level of load; none without data."""
    if not summaries:
        return []
    return [
        _chart(
            "Output tokens per second",
            "tokens/s",
            "higher is better",
            [(s, s.output_tokens_per_s, s.output_tokens_per_s) for s in summaries],
        ),
        _chart(
            "Time to first token",
            "ms",
            "dot: median, whisker: 95th percentile; lower is better",
            [
                (s, median, p95)
                for s in summaries
                if (median := s.percentiles["ttft_ms"]["p50"]) is not None
                and (p95 := s.percentiles["ttft_ms"]["p95"]) is not None
            ],
        ),
    ]


def _chart(title: str, unit: str, note: str, values: Sequence[tuple[LevelSummary, float, float]]) -> Chart:
    levels = sorted({summary.level for summary, _, _ in values})
    tick = _round_up(max((high for _, _, high in values), default=0.0) / TICKS) or 1.0
    ticks = max(1, math.ceil(max((high for _, _, high in values), default=0.0) / tick))
    top = tick * ticks
    step = PLOT_WIDTH / (len(levels) or 1)
    middle = {level: LEFT + step * (index + 0.5) for index, level in enumerate(levels)}

    def y(value: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - value / top)

    def marks(target: Target) -> tuple[Mark, ...]:
        shift = -9.0 if target == "candidate" else 9.0
        return tuple(
            Mark(middle[s.level] + shift, y(low), y(high), f"{target}, {s.level}: {low:.4g} {unit}")
            for s, low, high in values
            if s.target == target
        )

    targets: tuple[Target, ...] = ("candidate", "live")
    return Chart(
        title,
        unit,
        note,
        axis_of(levels),
        tuple((y(tick * number), f"{tick * number:g}") for number in range(ticks + 1)),
        tuple((place, _tick_label(level)) for level, place in middle.items()),
        tuple((target, series) for target in targets if (series := marks(target))),
    )


def axis_of(levels: Sequence[LoadLevel]) -> str:
    """What the levels are numbers of."""
    kinds = {"concurrent requests": "concurrency", "requests/s": "request_rate"}
    return " or ".join(
        words for words, name in kinds.items() if any(getattr(level, name) is not None for level in levels)
    )


def _tick_label(level: LoadLevel) -> str:
    return f"{level.concurrency}" if level.request_rate is None else f"{level.request_rate:g}/s"


def _round_up(number: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, ... in the decade of `number`."""
    if number <= 0:
        return 0.0
    decade: float = 10 ** math.floor(math.log10(number))
    return next(round_number * decade for round_number in (1, 2, 5, 10) if round_number * decade >= number)
