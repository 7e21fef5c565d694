"""Clients of a model in memory: requests go to both releases as the model's route says, and are counted there."""

from dataclasses import replace

from slipway.tasks.contracts.errors import InputError, UnavailableError
from slipway.tasks.contracts.measured.traffic import Served
from slipway.tasks.serving.rendered.manifests import RELEASE_LABEL

REQUESTS_PER_LOOK = 1000


class MemoryTraffic:
    """See tasks.adapters.load.served_traffic. `weights` lists what the route gave the candidate at each look.

    With `beside_probes`, so many clients ask each release while a probe is asked, and none at another time.
    """

    def __init__(self, cluster, candidate, *, slow_from=101, failing_from=101, blind=False, beside_probes=0):
        self.cluster, self.candidate, self.blind = cluster, candidate, blind
        self.slow_from, self.failing_from = slow_from, failing_from
        self.beside_probes = beside_probes
        self.silent, self.rejecting, self.counted, self.weights, self.mirrored = set(), set(), {}, [], []

    def counters(self, labels):
        release = labels[RELEASE_LABEL]
        percent, mirror = shares(self.cluster.get("HTTPRoute", "demo"))
        if self.blind:
            return None
        if release == self.candidate:
            self.weights.append(percent)
            self.mirrored.append(mirror)
        share = (mirror or percent) if release == self.candidate else 100 - percent
        before = self.counted.get(release, Served())
        requests = 0 if self.beside_probes else REQUESTS_PER_LOOK * share / 100
        slow = release == self.candidate and share >= self.slow_from
        failed = requests / 2 if release == self.candidate and share >= self.failing_from else 0
        served = Served(requests - failed, failed, requests, requests * (0.5 if slow else 0.1), requests * 0.001)
        self.counted[release] = before + served
        return {f"{release}-0": replace(self.counted[release])}

    def answers(self, labels):
        return None

    def ask(self, service, request, timeout_s):
        # tests/fakes/kube/cluster.py gives addresses by the length of the Service's name
        name = "demo" if service.host == f"10.0.0.{len('demo')}" else "demo-candidate"
        if name in self.silent:
            raise UnavailableError(f"{name} does not answer")
        if self.beside_probes:
            for release, counted in self.counted.items():
                if (release == self.candidate) == (name != "demo"):
                    self.counted[release] = counted + Served(1 + self.beside_probes, 0, 1 + self.beside_probes, 1e6)
        if name in self.rejecting:
            raise InputError(f"{name} has no such adapter")
        return "Four.", 0.05


def shares(route):
    """Percent that goes to the candidate, and percent that is mirrored."""
    (rule,) = route["spec"]["rules"]
    weights = {backend["name"]: backend.get("weight", 1) for backend in rule["backendRefs"]}
    mirrors = [each["requestMirror"]["percent"] for each in rule.get("filters", [])]
    candidate = sum(weight for name, weight in weights.items() if name.endswith("-candidate"))
    return 100 * candidate // sum(weights.values()), mirrors[0] if mirrors else None
