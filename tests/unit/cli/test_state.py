"""`slipway explain` and `slipway status`: what is live, why, and the way back."""

import io
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from rich.console import Console

from slipway.cli.airflow.api import Airflow
from slipway.cli.airflow.login import Login
from slipway.cli.runs import leases
from slipway.cli.runs.channels import read_channel
from slipway.cli.runs.explain import explanation
from slipway.cli.runs.status import _service
from slipway.cli.runs.tables import adapter_lines
from slipway.cli.settings import Settings
from slipway.tasks.adapters.kube.lease_object import holder_of, spec_of
from slipway.tasks.adapters.kube.service_object import ServiceAddress
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.ledger import Ledger, LevelCost, StepCost
from slipway.tasks.contracts.measured.gate import GateReport, Verdict
from slipway.tasks.contracts.stored.adapters import Adapters
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.lease import DAG_RUN
from tests.fakes.releases import release
from tests.fakes.servers.airflow_server import PASSWORD, USER, Frame, Script
from tests.unit.cli.runs import DAG, gated, nothing_to_do, promoted

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
LAYOUT = Layout("s3://models")
LOGIN = Login(USER, PASSWORD)
OLDER, LIVE = "demo-older", release().id


class Documents:
    """What `explain` reads of an object store."""

    def __init__(self, channel=None, *, gate=None):
        self.documents = {LAYOUT.release("demo", LIVE): release().model_dump_json().encode()}
        if channel:
            self.documents[LAYOUT.channel("demo")] = channel.model_dump_json().encode()
        if gate:
            self.documents[f"{LAYOUT.evidence('demo', LIVE, 'run-2')}/gate.json"] = gate

    def read_bytes(self, uri):
        return self.documents[uri]

    def read_with_etag(self, uri):
        return (self.documents[uri], "etag") if uri in self.documents else None

    def link(self, uri):
        return f"https://console.example/{uri.removeprefix('s3://')}"


def channel(*, promotions=((OLDER, "run-1"), (LIVE, "run-2")), keep=2):
    made = Channel(name="demo")
    for hour, (release_id, run) in enumerate(promotions):
        uri = LAYOUT.release("demo", release_id)
        made = made.promoted(release_id, uri, at=NOON + timedelta(hours=hour), run=run, keep=keep)
    return made


def explained(store):
    console = Console(width=140, file=io.StringIO())
    for part in explanation(store, LAYOUT, "demo"):
        console.print(part, soft_wrap=True)
    return console.file.getvalue()


def gate_json():
    return GateReport.model_validate(gated(Verdict.PASSED)["data"]["report"]).model_dump_json().encode()


@pytest.mark.parametrize("document", [LAYOUT.channel("demo"), LAYOUT.release("demo", LIVE), "/gate.json"])
def test_a_document_that_was_cut_is_named(document):
    store = Documents(channel(), gate=gate_json())
    cut = next(uri for uri in store.documents if uri.endswith(document))
    store.documents[cut] = store.documents[cut][:-9]

    with pytest.raises(InputError) as caught:
        explained(store)

    assert caught.value.what.startswith(f"{cut} is not valid JSON")
    assert caught.value.remedy == "Check whether it was truncated or overwritten."


def test_what_runs_is_explained_by_its_commit_and_the_gate_that_it_passed():
    text = explained(Documents(channel(), gate=gate_json()))

    assert f"{LIVE} has been live since 2026-01-02 13:00:00 UTC" in text
    assert f"commit {'a' * 40}" in text
    assert "rollout    blue-green: all requests move at once" in text
    assert "promoted by run run-2" in text
    assert "answer_accuracy" in text
    assert f"report: https://console.example/models/releases/demo/{LIVE}/evidence/run-2/report.html" in text


def test_what_a_release_and_its_tokens_cost_is_explained_by_its_ledger():
    store = Documents(channel(), gate=gate_json())
    level = LevelCost(level="concurrency 4", tokens_per_s=200, cost_per_million_tokens=1.5)
    step = StepCost(step="build", seconds=1800, gpu_hours=0.5, cost=2.25)
    costs = Ledger(currency="EUR", steps=(step,), cost_per_hour=3.0, levels=(level,))
    store.documents[f"{LAYOUT.evidence('demo', LIVE, 'run-2')}/cost.json"] = costs.model_dump_json().encode()

    text = explained(store)

    assert "cost: 0.5 GPU-hours and 2.25 EUR until its gate" in text
    assert "1.5 EUR per million output tokens at concurrency 4" in text


def test_the_way_back_is_the_newest_previous_release():
    assert f'`slipway rollback demo --reason "..."` makes {OLDER} live again' in explained(Documents(channel()))


def test_without_a_previous_release_the_way_back_is_an_older_revision():
    assert "`slipway release demo --revision R`" in explained(Documents(channel(promotions=((LIVE, "run-2"),))))


def test_a_release_that_is_back_says_what_was_rolled_back_and_why():
    bad = channel(promotions=((LIVE, "run-2"), ("demo-bad", "run-3")))
    back = bad.rolled_back(at=NOON + timedelta(hours=3), run="run-4", reason="wrong answers")

    text = explained(Documents(back, gate=gate_json()))

    assert "live again since demo-bad was rolled back at 2026-01-02 15:00:00 UTC: wrong answers" in text
    assert "promoted by run run-2" in text


def test_evidence_that_is_gone_is_said_to_be_gone():
    assert "gate.json no longer exists" in explained(Documents(channel()))


def test_a_model_without_a_channel_is_a_wrong_input():
    with pytest.raises(InputError) as caught:
        read_channel(Documents(), LAYOUT, "demo")

    assert caught.value.what.startswith("no release of demo was promoted here yet")
    assert "`slipway status`" in caught.value.remedy


def test_a_channel_without_a_live_release_is_a_wrong_input():
    with pytest.raises(InputError) as caught:
        explained(Documents(Channel(name="demo")))

    assert (caught.value.what, caught.value.remedy) == (
        "no release of demo is live",
        "Make one with `slipway release demo`.",
    )


def test_the_status_shows_what_it_can_reach_and_names_what_it_cannot(airflow, slipway):
    airflow.dags[DAG] = promoted()
    slipway("release", "demo", "--no-wait", "--run-id", "ci-7")

    code, printed = slipway("status", "demo")

    assert code == 65
    assert "channel   unknown: no site is known" in printed
    assert "service   unknown: no site is known" in printed
    assert "run       ci-7  queued" in printed


def site_with(cluster):
    """What the status asks of the settings."""
    return SimpleNamespace(cluster=lambda: cluster, store=lambda: (Documents(channel()), LAYOUT))


class Balanced:
    """A cluster whose Service has an address outside."""

    def get(self, kind, name):
        ports = [{"name": "http", "port": 80}]
        ingress = [{"hostname": "demo.example"}]
        spec = {"type": "LoadBalancer", "ports": ports}
        return {"metadata": {"name": name}, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}

    def service_address(self, name):
        return ServiceAddress("10.96.0.7", {"http": 80}) if name == "demo" else None

    def endpoints(self, service):
        return {"demo-pod"}


def test_the_status_shows_where_a_service_answers_outside_the_cluster():
    lines = [str(line) for line in _service(site_with(Balanced()), "demo")]

    assert lines == ["service   10.96.0.7 (http 80) → demo-pod; external demo.example:80", "candidate none"]


class Lost(Balanced):
    """A cluster without the model's Service, or with one that reaches no pod."""

    def __init__(self, *, service):
        self.service = service

    def get(self, kind, name):
        return super().get(kind, name) if self.service else None

    def service_address(self, name):
        return super().service_address(name) if self.service else None

    def endpoints(self, service):
        return set()


@pytest.mark.parametrize(("service", "why"), [(False, "the cluster has no Service demo"), (True, "no ready pod")])
def test_a_cluster_that_does_not_serve_what_the_channel_names_is_said_so_with_the_way_to_restore_it(service, why):
    lines = [str(line) for line in _service(site_with(Lost(service=service)), "demo")]

    assert f"{LIVE} is live according to the channel" in lines[0]
    assert why in lines[0]
    assert "`slipway restore demo`" in lines[1]


@pytest.mark.parametrize("service", [False, True])
def test_a_release_with_nothing_to_do_fails_where_the_cluster_serves_nothing(airflow, slipway, monkeypatch, service):
    airflow.dags[DAG] = nothing_to_do()
    monkeypatch.setattr(Settings, "cluster", lambda _: Lost(service=service))

    code, printed = slipway("release", "demo")

    assert code == 1
    assert "nothing was done: " in printed
    assert "`slipway restore demo`" in printed


def test_a_release_with_nothing_to_do_is_a_success_where_the_cluster_serves_it(airflow, slipway, monkeypatch):
    airflow.dags[DAG] = nothing_to_do()
    monkeypatch.setattr(Settings, "cluster", lambda _: Balanced())

    assert slipway("release", "demo")[0] == 0


class Held(Balanced):
    """A cluster in which a run holds the model."""

    def __init__(self, dag_run):
        self.dag_run = dag_run

    def lease_holder(self, lease):
        assert lease == "slipway-demo"
        held = self.find("Lease", {})
        return holder_of(held[0]) if held else None

    def find(self, kind, labels):
        if self.dag_run is None:
            return []
        spec = spec_of("run-1", 3600, NOON, NOON)
        names = ("slipway-demo", "slipway-group.chat-models")
        return [{"metadata": {"name": name, "annotations": {DAG_RUN: self.dag_run}}, "spec": spec} for name in names]


@pytest.fixture
def lease_lines(airflow, slipway):
    """The lines about the lease of a cluster, beside an Airflow whose run `ended` has ended and whose run `on` has not."""
    airflow.dags[DAG] = nothing_to_do()
    slipway("release", "demo", "--run-id", "ended")
    airflow.dags[DAG] = Script([Frame("running")])
    slipway("release", "demo", "--no-wait", "--run-id", "on")

    def read(dag_run, told=leases.lines, name=("demo",)):
        connected = SimpleNamespace(cluster=lambda: Held(dag_run), airflow=lambda: Airflow(airflow.address, LOGIN))
        return [str(line) for line in told(connected, *name)]

    return read


@pytest.mark.parametrize("run", ["ended", "deleted"])
def test_a_lease_of_a_run_that_has_ended_is_said_so_with_the_way_to_remove_what_it_left(lease_lines, run):
    held, hint = lease_lines(f"{DAG}/{run}")

    assert f"run {DAG}/{run}, since 2026-01-02 12:00:00 UTC; that run has ended" in held
    assert "`slipway restore demo`" in hint


@pytest.mark.parametrize(("dag_run", "told"), [(f"{DAG}/on", f"run {DAG}/on, since"), ("", "run run-1, since")])
def test_a_lease_of_a_run_that_goes_on_is_shown(lease_lines, dag_run, told):
    (line,) = lease_lines(dag_run)

    assert told in line
    assert "ended" not in line


def test_a_model_that_no_run_holds_has_no_line_about_it(lease_lines):
    assert lease_lines(None) == []


def test_among_all_models_those_are_named_whose_run_has_ended(lease_lines):
    held, hint = lease_lines(f"{DAG}/ended", leases.lines_of_all, ())

    assert f"run {DAG}/ended, since 2026-01-02 12:00:00 UTC; that run has ended" in held
    assert "`slipway restore demo`" in hint


@pytest.mark.parametrize("dag_run", [f"{DAG}/on", "", None])
def test_among_all_models_one_whose_run_goes_on_has_no_line(lease_lines, dag_run):
    assert lease_lines(dag_run, leases.lines_of_all, ()) == []


def test_the_status_has_the_adapters_of_the_live_release_and_what_became_of_them():
    entry = {"name": "polite", "repo": "org/polite", "revision": "v3", "commit": "c" * 40, "key": "a" * 64, "rank": 8}
    sets = [
        {"adapters": [entry], "event": "loaded", "run": "run-2", "at": NOON, "reason": "kinder"},
        {"adapters": [], "event": "rolled-back", "run": "run-1", "at": NOON},
    ]
    adapters = Adapters(release_id=LIVE, sets=sets, listed=())

    assert adapter_lines(adapters) == [
        f"adapter   polite  org/polite@v3 ({'c' * 12}), not listed yet",
        f"adapters  2026-01-02 12:00:00 UTC  loaded      polite org/polite@{'c' * 12}: kinder",
        "adapters  2026-01-02 12:00:00 UTC  rolled-back none",
    ]
    assert adapter_lines(adapters.listing())[0] == f"adapter   polite  org/polite@v3 ({'c' * 12})"
    assert adapter_lines(None) == []
