"""kill -9 of every step in the midst of its work, and what another try makes of it.

The tests are one release, step by step, in the order of its steps; a test that runs alone makes the steps before it.
"""

import contextlib
import json
import random
from pathlib import Path

import pytest

from slipway.tasks.contracts.stored.artifact import MANIFEST, STAGES
from slipway.tasks.contracts.stored.attestation import PROVENANCE, SIGNATURE
from tests.local.steps.step_pods import FETCH, KILLED, At, ByHand
from tests.support import plain_http
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(1200)
CHANCE = random.Random()  # noqa: S311 - no moment is special, so each run takes another


def after(text, least_s, most_s):
    """Some time after a step says so."""
    return At(text, CHANCE.uniform(least_s, most_s))


def runs(program, otherwise):
    """When the step has started `program`, or ended; where processes are out of sight, when it says `otherwise`."""

    def moment(pod, by_hand):
        if by_hand.chain.stack is None:
            return pod.wait_for_line(otherwise)
        until(pod.processes)
        return until(lambda: not (left := pod.processes()) or program in " ".join(left.values()), every_s=0.02)

    return moment


def first_object_of(stage):
    """When the first object of the stage's artifact is stored."""

    def moment(pod, by_hand):
        prefix = by_hand.chain.layout.artifact(stage, by_hand.key(stage))
        return until(lambda: by_hand.chain.keys(prefix), every_s=0.005)

    return moment


MIDWAY = {
    "quantize": [At("measuring the source's perplexity")],
    "build": [after("fetch quantize", 0.1, 0.5)],
    "assemble": [At("fetch build"), runs("triton_python_backend_stub", "fetch build")],
    "publish": [after("begins", 0.0, 0.1), first_object_of("publish")],
}


def kill_midway(by_hand, step, moments):
    """Kill as many tries of the step as there are moments; at least one of them before it ends."""
    codes = [kill_at(moment, by_hand, step) for moment in moments]
    assert by_hand.chain.stack is None or KILLED in codes, (moments, codes)


def kill_at(moment, by_hand, step):
    """Start a try of the step and kill it at the moment; its exit code, None if it is out of sight or had ended."""
    code, stops_at = None, moment if isinstance(moment, At) else None
    pod = by_hand.start(step, stops_at)
    pod.wait_until_it_stops() if stops_at else moment(pod, by_hand)
    if pod.kill() and by_hand.chain.stack:
        until(lambda: not pod.processes())
        code = pod.end().exit_code
    pod.gone()
    return code


def unmade(by_hand, stage):
    """Take away what another test of this stack may have stored of the stage; an old claim stays."""
    if by_hand.chain.stack:
        artifact = by_hand.chain.layout.artifact(stage, by_hand.key(stage))
        by_hand.chain.forget(f"{artifact}/")
        left = {"claimed_by": "nobody", "claimed_at": "2000-01-01T00:00:00Z"}
        by_hand.chain.write(f"{artifact}/{MANIFEST}", left)


def weights_withheld(chain):
    """The Hub sends a byte of the weights a second within the block: no download ends there, on any machine."""
    if chain.stack is None:
        return contextlib.nullcontext()
    token = json.loads((chain.stack.folder / "hub" / "server.json").read_text())["admin_token"]
    url, headers = f"{chain.stack.hub_endpoint}/_faults", {"Authorization": f"Bearer {token}"}
    fault = {"repo": "slipway/demo-llama", "file": "model.safetensors", "kind": "slow", "bytes_per_s": 1}

    @contextlib.contextmanager
    def withheld():
        plain_http.post(url, json=fault, headers=headers).raise_for_status()
        try:
            yield
        finally:
            plain_http.delete(url, headers=headers).raise_for_status()

    return withheld()


def assert_stored_once(by_hand, stage):
    """The artifact is there, whole, and nothing beside it under its prefix."""
    chain, key = by_hand.chain, by_hand.key(stage)
    manifest, prefix = chain.manifest(stage, key), chain.layout.artifact(stage, key)
    assert manifest is not None
    named = {f"{prefix}/{file['path']}" for file in manifest["files"]} | {f"{prefix}/{MANIFEST}"}
    signed = {f"{prefix}/{SIGNATURE}", f"{prefix}/{PROVENANCE}"} if stage == "publish" and chain.site.signing else set()
    assert chain.keys(f"{prefix}/") == named | signed


def left_shared_memory():
    """Regions of Triton in this machine's shared memory whose boot test is gone."""
    regions = Path("/dev/shm").glob("slipway-boot-*")
    return [region.name for region in regions if not Path("/proc", region.name.split("-")[2]).exists()]


def test_a_killed_plan_leaves_a_whole_release_or_none_and_the_next_one_has_the_same_keys(chain, by_hand):
    kill_midway(by_hand, "plan", [after("begins", 0.0, 0.2) for _ in range(3)])
    root = chain.layout.release(by_hand.spec.name, "").removesuffix("/release.json")
    for uri in chain.keys(root):
        assert chain.read(uri)

    by_hand.make("plan")
    keys = {stage: by_hand.key(stage) for stage in STAGES}
    by_hand.make("plan")

    assert {stage: by_hand.key(stage) for stage in STAGES} == keys
    assert chain.read(by_hand.uri)["plan"]["stages"]["publish"]["key"] == keys["publish"]


def test_a_killed_download_leaves_no_artifact_and_is_repeated(chain, by_hand):
    by_hand.reach("download")
    unmade(by_hand, "download")
    with weights_withheld(chain):
        kill_midway(by_hand, "download", [after("begins", 1.0, 3.0)])
    made = chain.manifest("download", by_hand.key("download"))  # its files are looked at: it is whole or absent
    assert made is None or chain.stack is None  # only the embedded Hub can be slowed down

    by_hand.make("download")

    assert_stored_once(by_hand, "download")


@pytest.mark.parametrize("stage", ["quantize", "build", "assemble", "publish"])
def test_a_killed_stage_leaves_no_half_artifact_and_is_repeated(chain, by_hand, stage):
    by_hand.reach(stage)
    unmade(by_hand, stage)

    kill_midway(by_hand, stage, MIDWAY[stage])
    chain.manifest(stage, by_hand.key(stage))  # none, or a whole one

    by_hand.make(stage)

    assert by_hand.result(stage)["outcome"] in {"done", "stored"}
    assert_stored_once(by_hand, stage)
    if chain.stack and stage == "assemble":
        until(lambda: left_shared_memory() == [])  # another checkout's tests leave some for a while


def test_what_was_made_in_spite_of_all_kills_is_what_a_new_plan_asks_for(chain, by_hand):
    by_hand.reach("roll-out")
    before = by_hand.plan
    if chain.stack is None:
        pytest.skip("plans in a shared store use --force, so no stage is ever stored")

    by_hand.make("plan")

    assert {stage: planned["key"] for stage, planned in by_hand.plan["stages"].items()} == {
        stage: planned["key"] for stage, planned in before["stages"].items()
    }
    assert all(planned["stored"] for planned in by_hand.plan["stages"].values())


def test_a_killed_roll_out_and_a_killed_fetch_end_in_a_candidate_that_answers(chain, by_hand):
    by_hand.reach("roll-out")
    name = by_hand.spec.name
    kill_midway(by_hand, "roll-out", [At("roll-out: deploy"), after("roll-out: await-available", 0.0, 1.0)])
    assert chain.cluster.live_address(name) is None
    assert chain.deployments(name) <= {by_hand.id}

    if chain.stack:  # elsewhere the init container's process is out of reach
        assert any(fetch_was_killed(by_hand) for _ in range(3))
    by_hand.make("roll-out")
    assert chain.deployments(name) == {by_hand.id}
    assert chain.ask(f"{name}-candidate", name)
    assert chain.cluster.live_address(name) is None


def fetch_was_killed(by_hand):
    """Roll out anew and kill the fetch once its first file is there; whether it was killed before it ended."""
    by_hand.chain.cluster.delete("Deployment", by_hand.id)
    roll_out = by_hand.start("roll-out")
    by_hand.kill_fetch()
    ended = roll_out.end()
    assert ended.exit_code == 0, ended.said[-2000:]
    return sum(count for (_, container), count in by_hand.restarts().items() if container == FETCH) == 1


def test_a_second_release_of_the_model_is_refused_while_the_first_is_at_it(chain, by_hand):
    by_hand.reach("smoke-test")
    other = ByHand(chain, by_hand.spec.name, revision="v1", run="second")
    assert chain.run("plan", *other.planning).exit_code == 0

    refused = chain.run("roll-out", "--release", other.uri)

    assert refused.exit_code == 65
    assert f"a release of {by_hand.spec.name} is in progress: found run {by_hand.run}, " in refused.message
    assert "Wait until it ends" in refused.message
    assert chain.deployments(by_hand.spec.name) == {by_hand.id}
    assert chain.ask(f"{by_hand.spec.name}-candidate", by_hand.spec.name)


def test_a_second_plan_of_the_same_release_does_not_take_the_first_ones_identity(chain, by_hand):
    by_hand.reach("smoke-test")
    document = ["--spec", json.dumps(by_hand.document)]
    if chain.stack is None:
        pytest.skip("plans in a shared store use --force, so each run has a release of its own")
    assert chain.run("plan", *document, "--run", "third").exit_code == 0
    assert chain.read(by_hand.uri)["plan"]["run"] == "third"

    refused = chain.run("roll-out", "--release", by_hand.uri, "--run", "third")
    by_hand.make("smoke-test")

    assert (refused.exit_code, f"run {by_hand.run}, " in refused.message) == (65, True)
    assert by_hand.result("smoke-test")["run"] == by_hand.run


@pytest.mark.parametrize(
    ("step", "moments"),
    [
        ("smoke-test", [after("begins", 0.05, 0.4)]),
        ("benchmark", [after("begins", 0.1, 0.8)]),
        ("gate", [after("begins", 0.05, 0.4)]),
    ],
)
def test_a_killed_measurement_is_repeated_and_the_candidate_stays(chain, by_hand, step, moments):
    by_hand.reach(step)
    name = by_hand.spec.name

    kill_midway(by_hand, step, moments)
    for uri in chain.keys(chain.layout.evidence(name, by_hand.id, by_hand.run)):
        assert not uri.endswith(".json") or chain.read(uri) is not None
    assert chain.ask(f"{name}-candidate", name)

    by_hand.make(step)

    result = by_hand.result(step)
    assert (result["outcome"], result["run"]) == ("done", by_hand.run)
    if step == "gate":
        assert result["data"]["verdict"] == "passed", result["summary"]


def test_a_killed_roll_back_is_finished_by_the_next_one(chain, by_hand):
    by_hand.reach("promote")
    name = by_hand.spec.name

    kill_midway(by_hand, "roll-back", [At("roll-back: drop-candidate"), after("roll-back: retire", 0.0, 0.1)])
    by_hand.make("roll-back")

    assert chain.deployments(name) == set()
    assert chain.cluster.service_address(f"{name}-candidate") is None
    assert chain.live(name) is None
    assert [event["event"] for event in chain.channel(name)["history"]] == ["refused"]
    # they end within their grace time; that no process outlives the stack is looked at when it goes down
    pods = chain.cluster.find("Pod", {"slipway.dev/release": by_hand.id})
    assert all("deletionTimestamp" in pod["metadata"] for pod in pods)


def test_a_killed_promotion_is_finished_by_the_next_one(chain, by_hand):
    by_hand.reach("promote")
    name = by_hand.spec.name

    moments = [At("promote: point-live"), after("promote: swap-channel", 0.0, 0.1), At("promote: drop-candidate")]
    kill_midway(by_hand, "promote", moments)
    assert chain.live(name) in {None, by_hand.id}
    by_hand.make("promote")

    assert chain.live(name) == by_hand.id
    assert [event["event"] for event in chain.channel(name)["history"]].count("promoted") == 1
    assert chain.ask(name, name)
    assert chain.cluster.service_address(f"{name}-candidate") is None
    assert chain.deployments(name) == {by_hand.id}
    assert chain.cluster.lease_holder(f"slipway-{name}") is None
