"""One model that is released, rolled back and drilled while API server and node come and go, and what should hold then.

Each method is a run of Airflow's: its steps, with the tries that their DAG gives them.
"""

import dataclasses
import itertools
from contextlib import contextmanager, nullcontext
from enum import Enum, auto

from slipway.tasks import jobs
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.measured.drill import DrillRequest
from slipway.tasks.contracts.spec.rollout import DrillSettings
from slipway.tasks.contracts.stored.lease import DAG_RUN, lease_of
from slipway.tasks.contracts.stored.release import PREVIOUS, RevertRequest
from slipway.tasks.rollout.act.server_target import selected
from slipway.tasks.serving.rendered.manifests import MODEL_LABEL
from slipway.tasks.steps import drill, revert
from tests.fakes.counted_load import CountedLoad
from tests.fakes.documents import rollouts
from tests.fakes.kube.cluster import ConnectedWorkspace
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import site as site_of
from tests.local.outages.hollow_cluster import SettlingClock
from tests.support.paths import REPOSITORY

NAME = "demo"
DONE, WRONG_INPUT, UNAVAILABLE = 0, 65, 75
TRIES, DRILL_TRIES = 3, 2
"""How often the DAGs try each step again."""
TOO_SMALL = {"type": "Container", "max": {"memory": "1Mi"}}
"""A LimitRange's limit that no server's pod keeps."""
DRILLED = DrillSettings(request_rate=2.0, seconds=10)


class Ends(Enum):
    """How a release ends that no outage cuts off."""

    PROMOTED = auto()
    FAILS_GATE = auto()
    NOT_ADMITTED = auto()
    """A LimitRange refuses its pods."""


_namespaces = itertools.count(1)


class World:
    """The model in a namespace of its own, with one live release. `answers` lists what the steps answered, in order."""

    def __init__(self, hollow, folder):
        self.hollow, self.answers, self._refuses = hollow, [], False
        self._numbers = itertools.count(1)
        self.namespace = f"outages-{next(_namespaces)}"
        self.workspace = ConnectedWorkspace(
            site_of(kubernetes={"serving_namespace": self.namespace}),
            MemoryObjectStore(),
            SettlingClock(hollow),
            folder,
            REPOSITORY,
            lambda: None,
        )
        self._api = hollow.client()
        self.cluster = Cluster(self._api, self.namespace, self.workspace.clock)
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "slipway-server"}}
        place = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": self.namespace}}
        account["metadata"]["namespace"] = self.namespace
        self.cluster.apply([place, account])
        assert self.release(keep=1, ends=Ends.PROMOTED, outages=iter(()))

    def close(self):
        self.cluster.delete("Namespace", self.namespace)
        self._api.rest_client.pool_manager.clear()
        self._api.close()
        self.hollow.settle()
        self.hollow.dark.clear()

    @property
    def channel(self):
        return rollouts.channel(self.workspace)

    @property
    def live(self):
        return self.channel.live.release_id

    def release(self, *, keep, ends, outages):
        """Release the next version; whether the run promoted it."""
        with self._refusing() if ends is Ends.NOT_ADMITTED else nullcontext():
            return self._release(keep, ends, outages)

    def _release(self, keep, ends, outages):
        number = next(self._numbers)
        made = rollouts.version(number, rollout={"keep": keep})
        rollouts.published(self.workspace, made)
        run = f"release__{NAME}/{made.plan.run}"

        def tried(step):
            uri = self.workspace.layout.result(NAME, made.id, step)
            job = jobs.Job(step, made.plan.run, uri, lambda within: jobs.run_step(step, made, within), NAME, made.id)
            return self._tried(job, run, TRIES, outages)

        rolled_out = tried("roll-out")
        if rolled_out:
            rollouts.judged(self.workspace, made, "failed" if ends is Ends.FAILS_GATE else "passed")
        if rolled_out and ends is not Ends.FAILS_GATE and tried("promote"):
            return True
        tried("roll-back")
        return False

    def revert(self, *, outages, to=PREVIOUS):
        """Roll back, or with `to: live` put the model in order; whether the run succeeded."""
        run = f"run-{next(self._numbers)}"
        request = RevertRequest(name=NAME, run=run, reason="it is worse", to=to)
        uri = self.workspace.layout.revert(NAME, run)
        job = jobs.Job("revert", run, uri, lambda within: revert.run(request, within))
        return self._tried(job, f"rollback__{NAME}/{run}", TRIES, outages)

    def drill(self, *, outages):
        """Drill; whether the run succeeded."""
        run = f"run-{next(self._numbers)}"
        request = DrillRequest(name=NAME, run=run, settings=DRILLED)

        def load_of(model, rate, requests, timeout_s, clock):
            return CountedLoad(clock, rate)

        uri = self.workspace.layout.drill(NAME, run)
        job = jobs.Job("drill", run, uri, lambda within: drill.run(request, within, load_of=load_of))
        return self._tried(job, f"drill__{NAME}/{run}", DRILL_TRIES, outages)

    def _tried(self, job, dag_run, tries, outages):
        """Run a step until it succeeds, no other try can help, or all are used up, with the next outage during each."""
        codes = (self._step(job, dag_run, next(outages, None)) for _ in range(tries))
        return next((code for code in codes if code in {DONE, WRONG_INPUT}), UNAVAILABLE) == DONE

    def _step(self, job, dag_run, outage):
        ended = {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in self.cluster.find("Lease", {})
            if item["metadata"]["annotations"][DAG_RUN] != dag_run
        }
        before = self.hollow.met
        with self.hollow.away(outage):
            code, message = DONE, ""
            try:
                own = dataclasses.replace(self.workspace, connection=self.cluster, dag_run=dag_run, ended_holders=ended)
                message = jobs.report(job, own)
            except PipelineError as error:
                code, message = error.exit_code, str(error)
        self.answers.append((job.step, outage if self.hollow.met > before else None, self._refuses, code, message))
        return code

    @contextmanager
    def _refusing(self):
        """A LimitRange refuses every new pod of a server."""
        meta = {"name": "small", "namespace": self.namespace}
        self.cluster.apply(
            [{"kind": "LimitRange", "apiVersion": "v1", "metadata": meta, "spec": {"limits": [TOO_SMALL]}}]
        )
        self._refuses = True
        try:
            yield
        finally:
            self._refuses = False
            self.cluster.delete("LimitRange", "small")

    def assert_answers(self):
        """Nothing was lost: the live Service reaches a ready pod, has done so while there was a node, and only outages
        and refusals failed, each in its own way.
        """
        assert self.hollow.dark == []
        assert self.cluster.endpoints(NAME)
        for step, outage, refused, code, message in self.answers:
            expected = {DONE} | ({UNAVAILABLE} if outage else set()) | ({WRONG_INPUT} if refused else set())
            assert code in expected, (step, outage, refused, code, message)
            assert code != WRONG_INPUT or "LimitRange" in message, message

    @property
    def is_held(self):
        """Whether a lease says that a run is at the model: what is left behind is found by it."""
        return self.cluster.get("Lease", lease_of(NAME)) is not None

    def assert_in_order(self):
        """Nothing was left, and the channel names what serves."""
        channel = self.channel
        kept = {channel.live.release_id, *(entry.release_id for entry in channel.previous)}
        labels = {MODEL_LABEL: NAME}
        service = self.cluster.get("Service", NAME)
        assert selected(service["spec"]["selector"], NAME) == channel.live.release_id
        assert {item["metadata"]["name"] for item in self.cluster.find("Service", labels)} == {NAME}
        assert {item["metadata"]["name"] for item in self.cluster.find("Deployment", labels)} == kept
        assert not self.is_held
        once = [(event.event, event.release_id, event.run) for event in channel.history]
        assert len(once) == len(set(once))
