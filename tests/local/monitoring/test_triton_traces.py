"""Triton's own traces, sent by the flags that a site with telemetry.traces.triton renders."""

import time

from tasks.contracts.site.telemetry import Telemetry
from tasks.serving.rendered import commands
from tests.fakes.otlp_collector import OtlpCollector

PATIENCE_S = 30
QUESTION = "What is the capital of France?"


def test_a_request_is_a_trace_with_its_id_and_without_its_prompt(start_server, make_repository):
    with OtlpCollector() as collector:
        traces = Telemetry.model_validate({"traces": {"endpoint": collector.endpoint, "triton": True}}).triton_traces
        command = commands.single(commands.Server("127.0.0.1", 10, "x", traces=traces))
        flags = [word for word in command if word.startswith("--trace-config")]
        server = start_server(make_repository(), arguments=flags)

        assert server.generate(text_input=QUESTION, id="req_4711")[0] == 200
        deadline = time.monotonic() + PATIENCE_S
        while not collector.spans and time.monotonic() < deadline:
            time.sleep(0.2)

    assert {whose["service.name"] for _, whose in collector.spans} == {"triton"}
    assert "InferRequest" in {span.name for span, _ in collector.spans}
    assert any("demo" in str(span) for span, _ in collector.spans)
    assert any("req_4711" in str(span) for span, _ in collector.spans)
    assert not any("France" in str(span) for span, _ in collector.spans)
