"""Triton's own traces, sent by the flags that a site with telemetry.traces.triton renders."""

import asyncio
import base64

from slipway.tasks.adapters.triton.triton_generate import GenerateStreams
from slipway.tasks.contracts.site.telemetry import Telemetry
from slipway.tasks.serving.rendered import commands
from tests.fakes.servers.otlp_collector import OtlpCollector
from tests.support.waiting import until

QUESTION = "What is the capital of France?"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def ask_within_a_span(port):
    """As OpenAI's API asks Triton on behalf of a client that traces."""

    async def run():
        async with GenerateStreams("127.0.0.1", port) as triton:
            inputs = {"text_input": QUESTION, "stream": True}
            return [each async for each in triton.responses("demo", inputs, f"00-{TRACE}-{SPAN}-01")]

    return asyncio.run(run())


def is_known(collector):
    """Whether the client's trace has spans of Triton. Ids are hex in OTLP's JSON, which the collector leaves undecoded."""
    return base64.b64decode(TRACE) in {span.trace_id for span, _ in collector.spans}


def test_a_request_is_a_trace_with_its_id_and_without_its_prompt(start_server, make_repository):
    with OtlpCollector() as collector:
        traces = Telemetry.model_validate({"traces": {"endpoint": collector.endpoint, "triton": True}}).triton_traces
        command = commands.single(commands.Server("127.0.0.1", 10, "x", traces=traces))
        flags = [word for word in command if word.startswith("--trace-config")]
        server = start_server(make_repository(), arguments=flags)

        assert server.generate(text_input=QUESTION, id="req_4711")[0] == 200
        assert ask_within_a_span(server.http_port)
        until(lambda: is_known(collector))

    assert {whose["service.name"] for _, whose in collector.spans} == {"triton"}
    assert "InferRequest" in {span.name for span, _ in collector.spans}
    assert any("demo" in str(span) for span, _ in collector.spans)
    assert any("req_4711" in str(span) for span, _ in collector.spans)
    assert not any("France" in str(span) for span, _ in collector.spans)
