"""Traces of steps, as a collector that decodes OTLP sees them, and what a collector that fails costs a step."""

import json
import socket
import subprocess
import sys

import pytest

from slipway.tasks.adapters.hub.hub import Hub
from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.adapters.telemetry import tracing
from slipway.tasks.adapters.telemetry.traced import TracedHub, TracedObjectStore
from slipway.tasks.adapters.workspace import Outcome
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.telemetry import Telemetry, Traces
from slipway.tasks.contracts.wire.trace_context import is_trace_parent, trace_parent
from slipway.tasks.jobs import Job, _traced
from tests.fakes.hub import MemoryHub
from tests.fakes.servers.otlp_collector import OtlpCollector, attributes_of
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import workspace
from tests.support.waiting import PATIENCE_S

RESULT = "s3://bucket/result.json"
PROMPT = "a secret prompt hf_abcdefgh12345678"


def traced_job(folder, endpoint, step="download", run="run-1", work=None, environment=None, **telemetry):
    def transfer(space):
        space.store.put_bytes("s3://bucket/a", b"x" * 1000)
        space.store.read_bytes("s3://bucket/a")
        return Outcome("moved", {})

    traces = {"endpoint": endpoint, **telemetry} if endpoint else None
    space = workspace(folder, telemetry={"traces": traces})
    return _traced(Job(step, run, RESULT, work or transfer, "demo", "demo-1"), space, environment or {})


@pytest.fixture
def patient(monkeypatch):
    """A collector that answers has as long as it takes."""
    monkeypatch.setattr(tracing, "EXPORT_S", PATIENCE_S)
    monkeypatch.setattr(tracing, "CLOSE_S", PATIENCE_S)


@pytest.mark.usefixtures("patient")
def test_a_step_is_a_span_with_its_transfers_below_it_and_their_bytes(tmp_path):
    with OtlpCollector() as collector:
        traced_job(tmp_path, collector.endpoint)

    spans = {span.name: (span, whose) for span, whose in collector.spans if "result" not in str(attributes_of(span))}
    step, whose = spans["download"]
    expected = {
        "slipway.step": "download",
        "slipway.run": "run-1",
        "slipway.model": "demo",
        "slipway.release": "demo-1",
    }
    assert expected.items() <= whose.items()
    assert whose["service.name"] == "slipway"
    for name in ("s3.put", "s3.get"):
        assert spans[name][0].parent_span_id == step.span_id
        assert attributes_of(spans[name][0]) == {"slipway.uri": "s3://bucket/a", "slipway.bytes": 1000}
    assert collector.paths == ["/v1/traces"]


@pytest.mark.usefixtures("patient")
def test_all_steps_of_a_run_are_one_trace_and_another_run_is_another(tmp_path):
    with OtlpCollector() as collector:
        for step, run in (("plan", "run-1"), ("promote", "run-1"), ("plan", "run-2")):
            traced_job(tmp_path, collector.endpoint, step, run)

    steps = [span for span, _ in collector.spans if span.name in {"plan", "promote"}]
    ids = [span.trace_id.hex() for span in steps]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0] == trace_parent("demo", "run-1").split("-")[1]
    assert {span.parent_span_id.hex() for span in steps[:2]} == {trace_parent("demo", "run-1").split("-")[2]}


@pytest.mark.usefixtures("patient")
def test_a_context_of_the_environment_goes_before_the_runs_own(tmp_path):
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    with OtlpCollector() as collector:
        environment = {"TRACEPARENT": given, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}
        traced_job(tmp_path, None, environment=environment)

    assert {span.trace_id.hex() for span, _ in collector.spans} == {"a" * 32}


@pytest.mark.usefixtures("patient")
def test_an_error_tells_its_class_and_nothing_that_a_person_wrote(tmp_path):
    def fail(_):
        raise InputError(f"wrong answer to {PROMPT}")

    with OtlpCollector() as collector, pytest.raises(InputError):
        traced_job(tmp_path, collector.endpoint, work=fail)

    [step] = [span for span, _ in collector.spans if span.name == "download"]
    assert step.status.message == "InputError"
    assert not any("prompt" in str(span) or "hf_" in str(span) for span, _ in collector.spans)


def test_no_run_is_traced_at_a_ratio_of_zero(tmp_path):
    with OtlpCollector() as collector:
        traced_job(tmp_path, collector.endpoint, sample_ratio=0)

    assert collector.spans == []


@pytest.mark.usefixtures("patient")
def test_the_sdks_own_variables_reach_the_collector(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    with OtlpCollector() as collector:
        traced_job(tmp_path, collector.endpoint)

    assert collector.headers[0]["authorization"] == "Bearer abc"


def closed_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def heard(monkeypatch):
    """That traces are lost is logged before the step's end, however long the machine takes."""
    monkeypatch.setattr(tracing, "CLOSE_S", PATIENCE_S)


@pytest.mark.usefixtures("heard")
def test_a_collector_that_is_gone_costs_no_result(tmp_path, caplog):
    endpoint = closed_port()

    told = traced_job(tmp_path, endpoint)

    assert told == "download: moved"
    assert f"traces are lost: the collector at {endpoint}/v1/traces took none" in caplog.text


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("status", [503, 400])
def test_a_collector_that_refuses_costs_no_result(tmp_path, caplog, status):
    with OtlpCollector(status=status) as collector:
        assert traced_job(tmp_path, collector.endpoint) == "download: moved"

    assert "traces are lost" in caplog.text


@pytest.mark.timeout(28)  # the SDK alone would give up after 30 s
@pytest.mark.parametrize("trouble", ["silent", "drips"])
def test_a_step_ends_though_the_collector_never_answers(tmp_path, trouble):
    with OtlpCollector(trouble=trouble) as collector:
        assert traced_job(tmp_path, collector.endpoint) == "download: moved"
        assert collector.answered == 0


def test_without_a_collector_the_sdk_is_not_even_loaded():
    code = """
import sys
from slipway.tasks.adapters.telemetry import tracing
spans = tracing.start(None, {}, parent="", resource={})
with spans.span("x") as found:
    found["a"] = 1
spans.close()
print(any(name.startswith("opentelemetry") for name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


@pytest.mark.usefixtures("patient")
def test_the_hub_is_traced_by_repository_and_commit_never_by_token(tmp_path):
    with OtlpCollector() as collector:
        spans = tracing.start(
            Traces(endpoint=collector.endpoint), {}, parent=trace_parent("demo", "run-1"), resource={}
        )
        hub = TracedHub(MemoryHub({"acme/demo": {"main": {"config.json": b"{}"}}}), spans)
        source = hub.resolve("acme/demo", "main")
        spans.close()

    [(span, _)] = collector.spans
    assert span.name == "hub.resolve"
    assert attributes_of(span) == {
        "slipway.repo": "acme/demo",
        "slipway.commit": source.commit,
        "slipway.bytes": source.size_bytes,
    }


def test_a_traced_store_does_what_the_store_does(tmp_path):
    store = TracedObjectStore(MemoryObjectStore(), tracing.Spans())
    file = tmp_path / "file"
    file.write_bytes(b"abc")

    store.put_file(file, "s3://bucket/x/file", sha256="0" * 64)
    store.copy(store.describe("s3://bucket/x/file"), "s3://bucket/x/copy")
    store.get_file("s3://bucket/x/copy", tmp_path / "back", 3)
    store.put_if("s3://bucket/x/new", json.dumps({}).encode(), etag=None)
    store.delete(["s3://bucket/x/file"])

    assert (tmp_path / "back").read_bytes() == b"abc"
    assert [item.uri for item in store.list("s3://bucket/x/")] == ["s3://bucket/x/copy", "s3://bucket/x/new"]


@pytest.mark.parametrize(("protocol", "wrapper"), [(ObjectStore, TracedObjectStore), (Hub, TracedHub)])
def test_every_method_is_passed_on(protocol, wrapper):
    promised = {name for name, item in vars(protocol).items() if callable(item) and not name.startswith("_")}

    assert promised
    assert promised <= vars(wrapper).keys()


@pytest.mark.parametrize(
    "endpoint", ["http://user:pw@host:4318", "http://host:4318/v1/traces", "host:4318", "http://host?a=b"]
)
def test_an_endpoint_that_cannot_be_one_is_refused(endpoint):
    with pytest.raises(ValueError, match="endpoint"):
        Telemetry.model_validate({"traces": {"endpoint": endpoint}})


@pytest.mark.parametrize(
    ("text", "good"), [(trace_parent("a", "b"), True), ("", False), (f"00-{'0' * 32}-{'1' * 16}-01", False)]
)
def test_a_context_is_told_from_other_text(text, good):
    assert is_trace_parent(text) is good
