"""A model, its releases step by step, and the facts that should hold after a fault."""

import copy
import dataclasses
import itertools
import os
import signal
import urllib.request
from pathlib import Path

from slipway.tasks import jobs
from slipway.tasks.adapters.kube.kube import Cluster
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.pods.writes import MODELS
from slipway.tasks.contracts.stored.release import RevertRequest
from slipway.tasks.rollout.act.server_target import selected
from slipway.tasks.serving.rendered.manifests import MODEL_LABEL, RELEASE_LABEL
from slipway.tasks.steps import revert
from tests.fakes.documents import rollouts
from tests.fakes.kube.cluster import MemoryCluster
from tests.support.cluster_process import restart_counts
from tests.support.waiting import PATIENCE_S, until

NAME = "demo"
OURS = {MODEL_LABEL: NAME}
SMOKE = {"prompt": "1", "answer": f"{NAME}-", "match": "contains"}
"""The stand-in answers with the name of its pod, in as many pieces as the prompt says."""
DONE, WRONG_INPUT, UNAVAILABLE = 0, 65, 75


class Moments:
    """Calls `before` and `after` once, when an object of this kind and name is applied."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self._acts = {}

    def act(self, kind, name, *, before=None, after=None):
        self._acts[kind, name] = before, after

    def apply(self, objects):
        for item in objects:
            before, after = self._acts.pop((item["kind"], item["metadata"]["name"]), (None, None))
            if before:
                before()
            super().apply([item])
            if after:
                after()


class RealCluster(Moments, Cluster):
    """The adapter itself."""

    def __init__(self, api, namespace, clock, **more):
        super().__init__(api, namespace, clock, **more)
        self.api = api

    def with_clock(self, clock):
        """Show the same cluster to a process with another clock."""
        return RealCluster(self.api, self.namespace, clock)


class PaperCluster(Moments, MemoryCluster):
    """Objects in memory, where no pod is."""

    def with_clock(self, clock):
        """Show the same cluster to a process with another clock."""
        other = PaperCluster(clock, self.namespace)
        other.objects, other.own_clock = self.objects, self.own_clock
        return other


class Model:
    """What a test does with the model `demo`, and what it looks at."""

    def __init__(self, workspace):
        self.workspace, self.cluster, self.message = workspace, workspace.connection, ""
        self._numbers, self._before, self.is_whole = itertools.count(1), 0, True

    def elsewhere(self, clock=None, **changes):
        """The same model as another run's pod sees it, with a connection of its own and perhaps another clock."""
        clock = clock or self.workspace.clock
        cluster = self.cluster.with_clock(clock)
        other = copy.copy(self)
        other.workspace = dataclasses.replace(self.workspace, connection=cluster, clock=clock, **changes)
        other.cluster = cluster
        return other

    def begin(self):
        """A test begins: until `assert_whole` the model is in use."""
        self._before, self.is_whole = len(self.channel.history), False

    @property
    def channel(self):
        return rollouts.channel(self.workspace)

    @property
    def live(self):
        """The id of the release that the channel names."""
        return self.channel.live.release_id

    def version(self, temper="good", **changes):
        """The next release, published. Only the live one is kept unless `changes` say otherwise."""
        serving = {"image": f"test/triton:{temper}", "ready_timeout_s": 10 if temper == "unready" else 90, "drain_s": 1}
        serving |= changes.pop("serving", {})
        made = rollouts.version(next(self._numbers), serving=serving, **{"rollout": {"keep": 1}, **changes})
        rollouts.published(self.workspace, made)
        return made

    def step(self, step, release, *, workspace=None):
        """Run a step as its pod does, with its result document; the exit code."""
        workspace = workspace or self.workspace
        uri = workspace.layout.result(NAME, release.id, step)
        release_uri = workspace.layout.release(NAME, release.id)

        def work(within):
            return jobs.run_step(step, release, within)

        return self._exit_code(jobs.Job(step, release.plan.run, uri, work, NAME, release.id, release_uri), workspace)

    def revert(self, run="drill-1", *, workspace=None):
        workspace, request = workspace or self.workspace, RevertRequest(name=NAME, run=run, reason="drill")
        job = jobs.Job("revert", run, workspace.layout.revert(NAME, run), lambda within: revert.run(request, within))
        return self._exit_code(job, workspace)

    def _exit_code(self, job, workspace):
        try:
            self.message = jobs.report(job, workspace)
        except PipelineError as error:
            self.message = str(error)
            return error.exit_code
        return DONE

    def steps(self, release, *steps):
        for step in steps:
            assert self.step(step, release) == DONE, self.message

    def judge(self, release, verdict="passed"):
        rollouts.judged(self.workspace, release, verdict)

    def candidate(self, temper="good", **changes):
        """A release that was rolled out and passed its gate."""
        made = self.version(temper, **changes)
        self.steps(made, "roll-out")
        self.judge(made)
        return made

    def released(self, **changes):
        """A release that is live."""
        made = self.candidate(**changes)
        self.steps(made, "promote")
        return made

    def answers(self):
        """The release that answers at the model's Service over HTTP."""
        address = self.cluster.live_address(NAME)
        with urllib.request.urlopen(f"http://{address.host}:{address.ports['http']}/v2", timeout=PATIENCE_S) as answer:
            return answer.read().decode().rsplit("-", 2)[0]

    def answers_again(self, release_id):
        """Wait until the release answers, after its only pod was lost."""

        def answered():
            try:
                return self.answers() == release_id
            except OSError:
                return False

        until(answered)

    def pods(self, release_id):
        """Pods of a release that are ready."""
        return self.cluster.ready_pods({RELEASE_LABEL: release_id})

    def kill_triton(self, release_id):
        """SIGKILL of the stand-in for Triton in the release's only pod; how often it had been started again before."""
        (pod,) = self.pods(release_id)
        (pid,) = [pid for pid in _processes(f"POD_NAME={pod}\0") if "stand_in.py" in _text(pid, "cmdline")]
        restarts = self._restarts(release_id)
        os.kill(pid, signal.SIGKILL)
        return restarts

    def restarts(self, release_id):
        """How often each container of each pod of a release was started again, by pod and container."""
        return restart_counts(self.cluster.find("Pod", {RELEASE_LABEL: release_id}))

    def started_again(self, release_id, restarts):
        """Wait until the release's only pod is ready, with a Triton that was started again more often than that."""
        until(lambda: self._restarts(release_id) > restarts and self.pods(release_id))

    def _restarts(self, release_id):
        (pod,) = self.cluster.find("Pod", {RELEASE_LABEL: release_id})
        return next(each["restartCount"] for each in pod["status"]["containerStatuses"] if each["name"] == "triton")

    def fill_a_volume(self, pod, state):
        """Write more to the pod's volume of models than its limit allows, as its fetch could."""
        (folder,) = state.glob(f"pods/{pod['metadata']['uid']}/**/{MODELS.volume}")
        (folder / "too-much").write_bytes(bytes(32 * 2**20))

    def write_artifact(self, stage, release, name, data):
        """One file of an artifact, without a manifest."""
        prefix = self.workspace.layout.artifact(stage, release.plan.stages[stage].key)
        self.workspace.store.put_bytes(f"{prefix}/{name}", data)

    def assert_whole(self, live, *events, warm=()):
        """Nothing is left but these releases, and channel, Service and what answers agree.

        `events` is what the test added to the channel's history: event and release, the newest first.
        """
        names, channel = {live, *warm}, self.channel
        assert self.answers() == live
        assert (channel.live.release_id, self._selects()) == (live, live)
        assert [entry.release_id for entry in channel.previous] == list(warm)
        added = channel.history[: len(channel.history) - self._before]
        assert [(entry.event, entry.release_id) for entry in added] == list(events)
        assert self._names("Deployment") == names
        assert self._names("Service") == {NAME}
        assert self.cluster.find("Lease", {}) == []
        assert self._releases_of_pods() == names
        self.is_whole = True

    def _selects(self):
        return selected(self.cluster.get("Service", NAME)["spec"]["selector"], NAME)

    def _names(self, kind):
        return {item["metadata"]["name"] for item in self.cluster.find(kind, OURS)}

    def _releases_of_pods(self):
        """Releases of pods that are not being deleted; those that are drain for some seconds."""
        pods = [pod for pod in self.cluster.find("Pod", OURS) if "deletionTimestamp" not in pod["metadata"]]
        return {pod["metadata"]["labels"][RELEASE_LABEL] for pod in pods}


class PaperModel(Model):
    """The same without pods: what the Service selects stands for what answers."""

    def answers(self):
        return self._selects()

    def _releases_of_pods(self):
        return self._names("Deployment")


def _processes(variable):
    """Processes with this in their environment."""
    return [
        int(folder.name) for folder in Path("/proc").glob("[0-9]*") if variable in _text(int(folder.name), "environ")
    ]


def _text(pid, file):
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
