"""Metrics in the text format that Prometheus scrapes. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Sample:
    """One value of a metric. `suffix` is that of a histogram's parts: `_bucket`, `_sum` or `_count`."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True)
class Metric:
    """A metric family: all samples of one name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    description: str
    samples: tuple[Sample, ...]


def text(metrics: Iterable[Metric]) -> str:
    """The page that a scrape reads."""
    return "".join(f"{line}\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {_escaped(metric.description, quote=False)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{metric.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {sample.value!r}"


def _escaped(value: str, *, quote: bool = True) -> str:
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    return value.replace('"', '\\"') if quote else value
