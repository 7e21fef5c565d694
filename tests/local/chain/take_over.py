"""The next revision goes live while clients ask. On this machine's own stack its release meets all that Airflow can lose.

First the drill of docs/disaster.md for Airflow's database, whose last command is the release. Its tasks wait for their pods in
the triggerer, as with `airflow.deferrable` of the site, except those from smoke-test to gate; beside it the stack's own
Airflow runs `slipway gc`. The triggerer is killed, and so is all of Airflow while the candidate is measured. A person
approves the result.
"""

import contextlib
import os
import signal
from dataclasses import dataclass

from demo.observers import PodWatch
from demo.traffic import Traffic
from slipway.cli.runs.follow import RunView
from tests.local.chain.disaster import commands, give, slipway
from tests.local.chain.killed_airflow import away
from tests.local.chain.lost_database import (
    DAG,
    change_site,
    history_of_runs,
    lose_database,
    make_older,
    site_with,
)
from tests.local.chain.whole_chain import MODEL, RUN_TIMEOUT_S
from tests.support.processes import sent, state_of
from tests.support.waiting import until

REVISION = "v2"
MEASURED = frozenset({"benchmark", "gate"})
DEFERRABLE = {"deferrable": True}
POLICY = {"schedule": None, "releases_per_model": 1, "days": 0, "evidence_days": 365, "grace_h": 1}
UNUSED = "f" * 64


@dataclass(frozen=True)
class State:
    """What must not change while Airflow is gone."""

    channel: dict
    service: tuple
    answers: bool

    @classmethod
    def of(cls, chain):
        return cls(chain.channel(), chain.live_service(), chain.ask())


class Drill:
    """Loses the database, the triggerer and all of Airflow in turn, and keeps what was seen.

    `before` and `without` are the state before and after the loss of the database, `lost_holder` who had the model's lease
    then, `history` whether Airflow knew of any run and `said` what the page's commands printed; `retention` is its run as it
    ended; `holder` had the lease while all of Airflow was away.
    """

    def __init__(self, chain):
        self._chain = chain

    def begin(self):
        """Lose the database, ask for the release and kill the triggerer; the run, once its roll-out has begun."""
        chain = self._chain
        put_unused(chain)
        self.before = State.of(chain)
        lose_database(chain, REVISION)
        make_older(chain)
        chain.up()
        self.without, self.lost_holder = State.of(chain), chain.lease_holder().dag_run
        self.history = until(lambda: history_of_runs(chain))
        change_site(chain, retention=POLICY)
        release = ["--revision", REVISION, "--approval", "human", "--no-wait"]
        with site_with(chain, airflow=DEFERRABLE):
            self.said = give(chain, commands("Airflow's database is lost"), release=release)
            (run,) = chain.airflow.runs(DAG, 1)
            self._retention = chain.trigger("retention", "beside-the-release", dry_run=False)
            chain.reach(run, None, {"deferred"})
            self._kill_triggerer()
            chain.reach(run, "roll-out", {"deferred", "success"})  # the tasks after it read the site as it was
        return run

    def _kill_triggerer(self):
        def pid():
            return self._chain.stack.status()["triggerer"].pid

        killed = until(pid)  # 0 while it is started again
        os.kill(killed, signal.SIGKILL)
        until(lambda: pid() not in (0, killed))

    def kill_airflow(self, run):
        """Kill all of it while a step measures the candidate, and approve the result once it is back."""
        chain = self._chain
        chain.reach(run, "benchmark", {"running", "success"})

        def stopped():
            pids = [pid for pid in chain.step_processes(run, MEASURED) if sent(pid, signal.SIGSTOP)]
            return pids if all(state_of(pid) == "T" for pid in pids) else []

        # so that its task has not ended when Airflow is gone, and retention has
        pids = until(stopped, timeout_s=RUN_TIMEOUT_S, every_s=0.1, said=lambda: chain.task_states(run))
        with contextlib.ExitStack() as going_on:
            for pid in pids:
                going_on.callback(sent, pid, signal.SIGCONT)
            self.retention = chain.follow(self._retention)
            with away(chain, chain.stack.airflow):
                going_on.close()
                self.holder = chain.lease_holder()
        chain.reach(run, "approval", {"awaiting_input"})
        with site_with(chain, airflow=DEFERRABLE):
            slipway(chain, "approve", MODEL)
            chain.reach(run, "promote", {"success"})


@dataclass(frozen=True)
class TakeOver:
    """The run as it ended, the live release before and after it, the channel after it, what a steady client met, and the
    steps of the release's pods; `drill` is None on a stack that no test may destroy."""

    view: RunView
    before: str
    after: str
    channel: dict
    traffic: Traffic
    pods: PodWatch
    drill: Drill | None


def take_over(chain, openai_client):
    """Release the next revision while clients ask."""
    before, drill = chain.live(), Drill(chain) if chain.stack else None
    openai_client.ask_each("Before the promotion")
    with chain.counting_pods(model=MODEL) as pods:
        run = drill.begin() if drill else chain.trigger(DAG, revision=REVISION)
        chain.reach_candidate()
        with chain.traffic() as traffic, openai_client.asking() as count:
            if drill:
                drill.kill_airflow(run)
            view = chain.follow(run)
            after = chain.live()
            until(lambda: after in count.answered_by)
    openai_client.ask_each("After the promotion")
    return TakeOver(view, before, after, chain.channel(), traffic, pods, drill)


def put_unused(chain):
    """A copy of the live release's own artifact, under a key that no plan has."""
    plan = chain.read(chain.layout.release(MODEL, chain.live()))["plan"]
    source = chain.layout.artifact("publish", plan["stages"]["publish"]["key"])
    client = chain.stack.object_store.client()
    for uri in chain.keys(f"{source}/"):
        bucket, _, key = f"{chain.layout.artifact('publish', UNUSED)}{uri.removeprefix(source)}"[5:].partition("/")
        client.put_object(Bucket=bucket, Key=key, Body=chain.bytes(uri))
