"""Steps as pods, made as Airflow makes them. Nobody retries one that is killed, so that a test may kill it where it wants."""

import contextlib
import itertools
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from kubernetes import client

from slipway.airflow.pods import step_pod
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import UnavailableError
from slipway.tasks.contracts.fit.step_kinds import steps_of
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import STAGES
from slipway.tasks.contracts.stored.lease import lease_names
from tests.local.chain.whole_chain import FEW_QUESTIONS, SPEC, Ended, processes_naming
from tests.support.cluster_process import restart_counts
from tests.support.processes import sent, state_of
from tests.support.waiting import until

KILLED = 137
FETCH = "fetch-repository"
NUMBERS = itertools.count(1)
LIGHT_GATE = SPEC["gate"] | {
    "quality": FEW_QUESTIONS,
    "benchmark": {"concurrency": [1], "requests": 8, "warmup": 0},
    "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}, {"metric": "error_rate", "at_most": 0.0}],
}
"""It is for tests of what comes after the gate."""
STOPPING = """
import logging, os, runpy, signal, sys, threading
text, pause_s = sys.argv[1], float(sys.argv[2])
del sys.argv[1:3]
make = logging.getLogRecordFactory()
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
def watched(*args, **kwargs):
    record = make(*args, **kwargs)
    if text in record.getMessage():
        later = threading.Timer(pause_s, stop)
        later.daemon = True
        later.start() if pause_s else stop()
    return record
logging.setLogRecordFactory(watched)
runpy.run_module("slipway.tasks", run_name="__main__", alter_sys=True)
"""
"""`slipway.tasks` in a process that stops itself: who looks at it from outside sees the moment when it is over."""


@dataclass(frozen=True)
class At:
    """The moment just before a step logs `text`, and begins what that names; or `pause_s` later."""

    text: str
    pause_s: float = 0.0


class StepPod:
    """A pod of one step, as slipway/airflow makes it. `stops_at`: it stops there, where processes are this machine's."""

    def __init__(self, chain, spec, step, arguments, stops_at=None):
        self._core, self._namespace = chain.core, chain.site.kubernetes.pipeline_namespace
        self._in_reach, self._stops_at = chain.stack is not None, stops_at
        program = ["-m", "slipway.tasks"]
        if stops_at and self._in_reach:
            program = ["-c", STOPPING, stops_at.text, str(stops_at.pause_s)]
        pod = step_pod(step, spec, chain.site)
        pod.metadata.name = f"{spec.name}-{step}-{next(NUMBERS)}-{os.getpid()}"
        pod.metadata.labels = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/model": spec.name}
        pod.spec.containers[0].command = ["python", *program, step, *arguments]
        self.name = pod.metadata.name
        self.uid = self._core.create_namespaced_pod(self._namespace, pod).metadata.uid

    def wait_for_line(self, text):
        """Follow the log until a line holds `text`; False: the pod ended without saying it."""
        until(lambda: self._status().phase != "Pending")
        answer = self._core.read_namespaced_pod_log(self.name, self._namespace, follow=True, _preload_content=False)
        with contextlib.closing(answer):
            return any(text.encode() in line for line in answer)

    def wait_until_it_stops(self):
        """Wait for the moment at which it was to stop, or for its end."""
        if self._in_reach:
            until(lambda: self._stopped() or self._has_ended(), every_s=0.1)
        elif self.wait_for_line(self._stops_at.text):
            time.sleep(self._stops_at.pause_s)

    def _stopped(self):
        return [pid for pid in self.processes() if state_of(pid) == "T"]

    def _has_ended(self):
        return self._status().phase in ("Succeeded", "Failed")

    def processes(self):
        """Processes of the pod, where they are this machine's."""
        return processes_naming(self.uid_in_paths)

    @property
    def uid_in_paths(self):
        return f"/pods/{self.uid}/volumes/"

    def kill(self):
        """kill -9 of the step's process; where that is out of reach, deletion without grace. Whether it still ran."""
        if self._has_ended():
            return False
        if self._in_reach:
            return kill_step(self.processes())
        self._delete()
        return True

    def end(self):
        """How it ended; the pod is deleted."""
        until(self._has_ended)
        state = self._status().container_statuses[0].state.terminated
        log = self._core.read_namespaced_pod_log(self.name, self._namespace, _preload_content=False).read().decode()
        self._delete()
        return Ended(state.exit_code, (state.message or "").strip(), log)

    def gone(self):
        """Delete what is left; nothing of it runs afterwards."""
        self._delete()
        until(lambda: not self.processes())

    def _delete(self):
        with contextlib.suppress(client.ApiException):
            self._core.delete_namespaced_pod(self.name, self._namespace, grace_period_seconds=0)

    def _status(self):
        return self._core.read_namespaced_pod(self.name, self._namespace).status


def kill_step(processes):
    """kill -9 of the step's own among the processes; whether there was one."""
    steps = [pid for pid, command in processes.items() if " -m slipway.tasks " in command or "runpy" in command]
    return bool([pid for pid in steps if sent(pid, signal.SIGKILL)])


class ByHand:
    """A release of one of the demo's revisions under a name of its own, a pod per step, in one run."""

    def __init__(self, chain, name="by-hand", revision="v2", run=None, **changes):
        self.chain, self.run = chain, run or f"by-hand-{int(time.time())}"
        benchmark = SPEC["gate"]["benchmark"] | {"concurrency": [1, 2], "requests": 32, "warmup": 2}
        gate = SPEC["gate"] | {"benchmark": benchmark}
        source = SPEC["source"] | {"revision": revision}
        self.document = SPEC | {"name": name, "source": source, "gate": gate, "rollout": {"keep": 1}} | changes
        self.spec = read_contract(ReleaseSpec, self.document, name)
        self._done = []

    @property
    def plan(self):
        """The plan of the run."""
        return self.chain.read(self.chain.layout.plan(self.spec.name, self.run))["data"]["plan"]

    @property
    def id(self):
        return self.plan["release_id"]

    @property
    def uri(self):
        return self.chain.layout.release(self.spec.name, self.id)

    @property
    def planning(self):
        """Arguments of plan. In a store that is not the tests' own everything is made anew."""
        anew = [] if self.chain.stack else ["--force"]
        return ["--spec", json.dumps(self.document), "--run", self.run, *anew]

    def key(self, stage):
        return self.plan["stages"][stage]["key"]

    def result(self, step):
        return self.chain.read(self.chain.layout.result(self.spec.name, self.id, step))

    def start(self, step, stops_at=None):
        arguments = self.planning if step == "plan" else ["--release", self.uri, "--run", self.run]
        return StepPod(self.chain, self.spec, step, arguments, stops_at)

    def make(self, step):
        """The step to its end, which is a good one. As Airflow does, try it again where it asks for that."""
        pod = self.start(step)
        ended = pod.end()
        if ended.exit_code == UnavailableError.exit_code:
            print(f"{step} is tried again: {ended.said[-2000:]}")
            pod.gone()
            pod = self.start(step)
            ended = pod.end()
        assert ended.exit_code == 0, ended.said[-2000:]
        pod.gone()
        if step == "roll-back":
            self._done.remove("roll-out")
        elif step not in self._done:
            self._done.append(step)
        return ended

    def reach(self, step):
        """Make whatever comes before `step` and is not made yet; a stage that the plan found stored has no pod."""
        steps = steps_of(self.spec)
        for before in steps[: steps.index("smoke-test" if step == "roll-back" else step)]:
            if before not in self._done and not (before in STAGES and self.plan["stages"][before]["stored"]):
                self.make(before)

    def fetching(self):
        """Pid of the init container of a serving pod, and the folder that it fills; None while there is none."""
        for pod in self.chain.cluster.find("Pod", {"slipway.dev/release": self.id}):
            uid = pod["metadata"]["uid"]
            for pid, command in processes_naming(f"/pods/{uid}/volumes/").items():
                if f" -m slipway.tasks {FETCH} " in command:
                    return pid, self.chain.stack.folder / "cluster" / "pods" / uid / "volumes" / "models"
        return None

    def kill_fetch(self, pods=1):
        """kill -9 of the next fetch of a serving pod once its first file is there, or of none that ended by then."""
        found = until(lambda: self.fetching() or self._has_fetched(pods), every_s=0.005)
        if found is True:
            return
        fetching, repository = found
        until(lambda: any(repository.glob("**/1/**")) or not Path(f"/proc/{fetching}").exists(), every_s=0.002)
        sent(fetching, signal.SIGKILL)

    def _has_fetched(self, pods):
        """Whether so many serving pods are there and none has yet to fetch."""
        there = [pod["status"].get("initContainerStatuses", ()) for pod in self.pods()]
        fetches = [each for statuses in there for each in statuses if each["name"] == FETCH]
        return len(fetches) == pods and all("terminated" in each["state"] for each in fetches)

    def pods(self):
        """Serving pods that are not being deleted."""
        pods = self.chain.cluster.find("Pod", {"slipway.dev/release": self.id})
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def restarts(self):
        """How often each container of each serving pod was started again, by pod and container."""
        return restart_counts(self.pods())

    def remove(self):
        """Take away what serves it."""
        labels = [{"slipway.dev/model": self.spec.name}]
        if self.spec.serving.group:
            labels.append({"slipway.dev/group": self.spec.serving.group})
        for kind in ("Deployment", "Service"):
            for item in (item for each in labels for item in self.chain.cluster.find(kind, each)):
                self.chain.cluster.delete(kind, item["metadata"]["name"])
        for lease in lease_names(self.spec):
            self.chain.cluster.release_lease(lease, self.run)
