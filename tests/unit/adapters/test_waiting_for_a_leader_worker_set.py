"""A LeaderWorkerSet is waited for by a status that says which generation it describes."""

import pytest

from slipway.tasks.adapters.kube.availability import Wait
from slipway.tasks.contracts.site.site import StartBudget
from tests.fakes.clock import ManualClock
from tests.support.refused import refused

NAME = "demo-mpi-000000000001"
PROGRESSING = {"type": "Progressing", "status": "True", "reason": "GroupsProgressing"}
AVAILABLE = {"type": "Available", "status": "True", "reason": "AllGroupsReady"}
READY = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "conditions": [AVAILABLE]}


class Listed:
    """A namespace whose set has one status after the other; the last one stays. It lists no pods."""

    namespace = "slipway-serving"

    def __init__(self, *statuses):
        self.statuses = list(statuses)

    def get(self, kind, name):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return {"kind": kind, "metadata": {"name": name, "generation": 2}, "spec": {"replicas": 1}, "status": status}

    def find(self, kind, labels):
        return []

    def events(self, name):
        return []


def waited(*statuses):
    clock = ManualClock()
    Wait(Listed(*statuses), clock, "LeaderWorkerSet", NAME, 60, StartBudget(schedule_min=1, pull_min=1)).run()
    return clock.monotonic()


def test_a_set_is_available_once_its_status_describes_the_newest_generation():
    assert waited({}, {**READY, "observedGeneration": 1}, {**READY, "observedGeneration": 2}) > 0


@pytest.mark.parametrize(
    "status", [READY, {"replicas": 1, "conditions": [PROGRESSING]}], ids=["available", "progressing"]
)
def test_a_controller_that_never_names_the_generation_is_refused_at_once(status):
    with refused(what=NAME, found="older than v0.9", remedy="Update the controller"):
        waited({}, status)
