"""VLLM's statistics as metrics of Triton, by the names that Triton's own vLLM backend gives them.

vllm_backend, src/utils/metrics.py at 8de0c148: names, descriptions and limits of the buckets.
"""

from collections.abc import Callable, Mapping
from typing import Any

import triton_python_backend_utils as pb_utils
from vllm.v1.metrics.loggers import StatLoggerBase

FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
NEXT_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)


def stat_loggers(args: Mapping[str, str]) -> list[Callable[..., StatLoggerBase]]:
    """What vLLM makes its loggers with; none where the server has no metrics.

    Args:
        args: what Triton passes to `initialize`.
    """
    try:
        metrics = EngineMetrics({"model": args["model_name"], "version": args["model_version"]})
    except pb_utils.TritonModelException as error:
        if "metrics not supported" in str(error):
            return []
        raise
    return [lambda *_: StatLogger(metrics)]


class EngineMetrics:
    """The metrics of one model."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        """Register them with Triton.

        Raises:
            TritonModelException: the server has no metrics.
        """
        counter, histogram = pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.HISTOGRAM
        self._families: list[Any] = []
        self._labels = dict(labels)
        self.prompt_tokens = self._made("vllm:prompt_tokens_total", "Number of prefill tokens processed.", counter)
        self.answer_tokens = self._made(
            "vllm:generation_tokens_total", "Number of generation tokens processed.", counter
        )
        self.first_token = self._made(
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            histogram,
            buckets=list(FIRST_TOKEN_S),
        )
        self.next_token = self._made(
            "vllm:time_per_output_token_seconds",
            "Histogram of time per output token in seconds.",
            histogram,
            buckets=list(NEXT_TOKEN_S),
        )

    def _made(self, name: str, description: str, kind: Any, **more: Any) -> Any:
        family = pb_utils.MetricFamily(name=name, description=description, kind=kind)
        self._families.append(family)  # Triton drops the metrics of a family that nobody holds
        return family.Metric(labels=self._labels, **more)


class StatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM is in its image only
    """What vLLM calls after each step of its engine."""

    def __init__(self, metrics: EngineMetrics) -> None:
        """Add to these."""
        self._metrics = metrics

    def record(self, _scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        """Add what a step did."""
        if iteration_stats is None:
            return
        metrics = self._metrics
        for counter, count in (
            (metrics.prompt_tokens, iteration_stats.num_prompt_tokens),
            (metrics.answer_tokens, iteration_stats.num_generation_tokens),
        ):
            if count:
                counter.increment(count)
        for seconds in iteration_stats.time_to_first_tokens_iter:
            metrics.first_token.observe(seconds)
        for seconds in iteration_stats.inter_token_latencies_iter:
            metrics.next_token.observe(seconds)

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
