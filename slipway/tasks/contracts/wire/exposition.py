"""Metrics in the text format that Prometheus scrapes. Pure.

Format: https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4.
"""

from collections.abc import Iterable, Mapping, Sequence
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


def summed(pages: Sequence[str]) -> str:
    """One page of the counters and histograms of several processes: the sum of every sample."""
    heads: dict[str, list[str]] = {}
    values: dict[str, dict[str, float]] = {}
    for page in pages:
        for lines in page.split("# HELP ")[1:]:
            head, kind, *samples = f"# HELP {lines}".splitlines()
            heads[kind] = [head, kind]
            family = values.setdefault(kind, {})
            for line in samples:
                sample, _, value = line.rpartition(" ")
                family[sample] = family.get(sample, 0) + float(value)
    found = [[*heads[kind], *(f"{name} {value!r}" for name, value in values[kind].items())] for kind in heads]
    return "".join(f"{line}\n" for lines in found for line in lines)


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {_escaped(metric.description, quote=False)}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for sample in metric.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{metric.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {sample.value!r}"


def _escaped(value: str, *, quote: bool = True) -> str:
    value = value.replace("\\", "\\\\").replace("\n", "\\n")
    return value.replace('"', '\\"') if quote else value
