"""Spans of a step, sent to the site's collector. Without a collector nothing is loaded and nothing is sent.

A collector that is down, slow or wrong costs at most CLOSE_S at the end of a step, and never its result.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slipway.tasks.contracts.site.telemetry import HEADERS_VARIABLE, TRACES_PATH, Traces
from slipway.tasks.contracts.wire.trace_context import TRACEPARENT, is_trace_parent

__all__ = ["HEADERS_VARIABLE", "Attributes", "Spans", "start"]

log = logging.getLogger(__name__)

Attributes = Mapping[str, str | int | float]

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXPORT_S = 2
"""The longest that one batch may take to send."""
CLOSE_S = 3.0
"""The longest that the end of a step waits for what is left."""
SERVICE = "slipway"


class Spans:
    """Opens spans; without a tracer it only runs the block."""

    def __init__(self, tracer: Any = None, context: Any = None, close: Callable[[], None] = lambda: None) -> None:
        self._tracer, self._context, self.close = tracer, context, close

    @contextmanager
    def span(self, name: str, attributes: Attributes | None = None) -> Iterator[dict[str, str | int | float]]:
        """Time the block. What the block puts into the mapping becomes attributes as well.

        Of an error, only its class is told: messages may quote a prompt.
        """
        added: dict[str, str | int | float] = {}
        if self._tracer is None:
            yield added
            return
        from opentelemetry.trace import Status, StatusCode, get_current_span

        context = None if get_current_span().get_span_context().is_valid else self._context
        options = {"record_exception": False, "set_status_on_exception": False}
        with self._tracer.start_as_current_span(name, context=context, attributes=attributes, **options) as span:
            try:
                yield added
            except BaseException as error:
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise
            finally:
                span.set_attributes(added)


def start(traces: Traces | None, environment: Mapping[str, str], *, parent: str, resource: Attributes) -> Spans:
    """Begin to trace, if the site or the environment names a collector.

    Args:
        traces: the site's setting.
        environment: OTEL_EXPORTER_OTLP_ENDPOINT in it goes before the site's endpoint, TRACEPARENT before `parent`.
            The SDK reads the other OTEL_* variables itself.
        parent: context that the run's spans have in common.
        resource: attributes of every span.
    """
    endpoint = environment.get(ENDPOINT_VARIABLE) or (traces.endpoint if traces else "")
    if not endpoint:
        return Spans()
    try:
        ratio = traces.sample_ratio if traces else 1.0
        return _started(endpoint.rstrip("/") + TRACES_PATH, ratio, environment, parent, resource)
    except ImportError as error:
        log.warning("there are no traces of this step: this image has no %s", error.name)
    except (ValueError, TypeError, OSError) as error:  # an OTEL_* variable, or a certificate that it names
        log.warning("there are no traces of this step: %s", type(error).__name__)
    return Spans()


def _started(url: str, ratio: float, environment: Mapping[str, str], parent: str, resource: Attributes) -> Spans:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    class Noticed(SpanExporter):
        """Says once that spans are lost, in place of the SDK's line for each batch."""

        def __init__(self) -> None:
            self._exporter: Any = OTLPSpanExporter(endpoint=url, timeout=EXPORT_S)
            self._said = False

        def export(self, spans: Any) -> Any:
            try:
                result = self._exporter.export(spans)
            except (OSError, ValueError):
                result = SpanExportResult.FAILURE
            if result is not SpanExportResult.SUCCESS and not self._said:
                self._said = True
                log.warning("traces are lost: the collector at %s took none. The step is not affected.", url)
            return result

        def shutdown(self) -> None:
            self._exporter.shutdown()

    for name in ("opentelemetry", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # by the trace's id, so that all steps of a run decide alike
    provider = TracerProvider(
        sampler=TraceIdRatioBased(ratio),
        resource=Resource.create({SERVICE_NAME: SERVICE, **resource}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(Noticed()))
    trace_parent = environment.get(TRACEPARENT, "")
    carrier = {"traceparent": trace_parent if is_trace_parent(trace_parent) else parent}
    context = TraceContextTextMapPropagator().extract(carrier)

    def close() -> None:
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    return Spans(provider.get_tracer("slipway"), context, close)
