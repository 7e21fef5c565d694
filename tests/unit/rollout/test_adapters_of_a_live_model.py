"""LoRA adapters are added to a live release, replaced and removed, without another release."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from slipway.tasks.contracts.errors import ConflictError, InputError, UnavailableError
from slipway.tasks.contracts.site.signing import Signing
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.adapters import AdaptersRequest
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.planning.adding import resolve_adapters
from slipway.tasks.rollout.act import drill
from slipway.tasks.rollout.act.reconciler import RolloutReconciler
from slipway.tasks.serving.pod.adapter_files import LOOK_S
from slipway.tasks.steps import fetch_adapters, load_adapters, plan, sign_adapters
from tests.fakes.clock import ManualClock
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.documents.rollouts import released
from tests.fakes.following_pods import FollowingPods
from tests.fakes.hub import MemoryHub
from tests.fakes.kube.cluster import KilledError, in_memory
from tests.fakes.releases import SPEC
from tests.fakes.signing_keys import SigningKey
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fixtures.adapters import adapter_files

ENGINE = {
    **SPEC["engine"],
    "kind": "vllm",
    "gpu": "NVIDIA-L4",
    "options": {"max_loras": 2, "max_lora_rank": 16},
}
SHAPES = {
    f"model.layers.{layer}.self_attn.{name}.weight": size
    for layer in range(2)
    for name, size in (("q_proj", (16, 16)), ("v_proj", (8, 16)))
}
MODULES = [name.removesuffix(".weight") for name in SHAPES]
BASE = {"quantization": {"format": "none"}, "engine": ENGINE}


def named(name, rank, revision="main"):
    """An adapter of the spec; the pods answer with its rank."""
    return {
        "name": name,
        "repo": f"org/{name}",
        "revision": revision,
        "smoke": [{"prompt": "What are you?", "answer": f"rank {rank}"}],
    }


def spec(*adapters):
    return ReleaseSpec.model_validate({**SPEC, **BASE, "adapters": adapters})


class MortalStore(MemoryObjectStore):
    """Kills the process before or after the document of the adapters is written for the n-th time."""

    dies_at = None

    def wrote(self, document):
        """Called after each write that nothing killed."""

    def put_if(self, uri, data, *, etag):
        if not uri.endswith("/adapters.json"):
            return super().put_if(uri, data, etag=etag)
        if self.dies_at is None:
            new = super().put_if(uri, data, etag=etag)
            self.wrote(json.loads(data))
            return new
        number, moment = self.dies_at
        self.dies_at = (number - 1, moment) if number else None
        if not number and moment == "before":
            raise KilledError("before the adapters were written")
        new = super().put_if(uri, data, etag=etag)
        if not number:
            raise KilledError("after the adapters were written")
        return new


@pytest.fixture
def hub():
    models = {
        f"org/{name}": {"main": adapter_files(rank), "v2": adapter_files(rank + 4)}
        for name, rank in (("polite", 4), ("terse", 8), ("large", 32))
    }
    return MemoryHub(models)


class World:
    """A live release with pods, and runs over it."""

    def __init__(self, folder, hub, *, pods=2):
        site = gpu_site()
        store = MortalStore()
        self.workspace = replace(in_memory(folder, store=store), site=site, connect_hub=lambda: hub)
        self.live = released(self.workspace, 1, **BASE)
        engine = folder / "engine" / "demo" / "1" / "engine"
        engine.mkdir(parents=True)
        (engine / "engine.json").write_text(
            json.dumps(
                {"architecture": "LlamaForCausalLM", "base": {"shapes": SHAPES, "modules": MODULES, "hidden": 16}}
            )
        )
        publish = self.live.plan.stages["publish"].key
        self.workspace.artifacts.store(
            "publish", publish, folder / "engine", inputs={}, producer={}, metrics={}, seconds=1.0
        )
        self.pods = FollowingPods(self.live, self.workspace, folder / "pods", pods)
        self.workspace = replace(self.workspace, served=self.pods)
        self.runs = 0
        self._folder = folder

    def run(self, asked, to="spec", *, run=None):
        """A run of both steps."""
        self.runs += 1
        request = AdaptersRequest(spec=asked, run=run or f"adapters-{self.runs}", to=to)
        self.fetch(request)
        return load_adapters.run(request, self.workspace)

    def fetch(self, request):
        scratch = self._folder / f"scratch-{self.runs}-{len(list(self._folder.iterdir()))}"
        scratch.mkdir()
        outcome = fetch_adapters.run(request, replace(self.workspace, scratch=scratch))
        result = StepResult(
            step="fetch-adapters",
            run=request.run,
            outcome="done",
            summary=outcome.summary,
            data=outcome.data,
            started_at=ManualClock().now(),
            seconds=1.0,
        )
        uri = self.workspace.layout.adapters_result("demo", request.run, "fetch-adapters")
        self.workspace.store.put_bytes(uri, result.model_dump_json().encode())
        return outcome

    @property
    def document(self):
        return self.workspace.documents.adapters("demo", self.live.id)

    def answers(self, lora):
        return [pod.answer(lora) for pod in self.pods.ready.values()]


@pytest.fixture
def world(tmp_path, hub):
    return World(tmp_path, hub)


def test_an_adapter_is_answered_by_every_pod_and_then_listed(world):
    outcome = world.run(spec(named("polite", 4)))

    assert outcome.data["verdict"] == "passed"
    assert world.answers("polite") == ["rank 4", "rank 4"]
    world.workspace.clock.sleep(LOOK_S)
    world.answers("polite")
    assert [pod.listed for pod in world.pods.ready.values()] == [["polite"], ["polite"]]
    assert world.document.listed == ("polite",)
    assert not [key for kind, key in world.workspace.connection.objects if kind == "Lease"]


def test_a_name_is_never_listed_before_every_pod_answers_to_it(world):
    def watch(pods):
        if any("polite" in pod.listed for pod in pods.ready.values()):
            assert pods.names == [["polite"], ["polite"]]

    world.pods.watching = watch
    world.run(spec(named("polite", 4)))
    watch(world.pods)


def test_one_pod_alone_has_an_adapter_until_it_passed_its_gate(world):
    seen = []
    world.pods.watching = lambda pods: seen.append([len(pod.loaded) for pod in pods.ready.values()])

    outcome = world.run(spec(named("polite", 5)))

    assert (outcome.data["verdict"], set(map(tuple, seen))) == ("failed", {(0, 0), (1, 0)})
    assert "rank 4" in outcome.summary
    with pytest.raises(InputError, match="no adapters"):
        world.answers("polite")
    assert (world.document.current, world.document.trial) == ((), None)


def test_clients_cannot_name_an_adapter_on_trial(world):
    names = set()
    world.pods.watching = lambda pods: names.update(name for pod in pods.ready.values() for name in pod.adapters)

    world.run(spec(named("polite", 5)))

    (label,) = names
    assert label.startswith("polite@")
    assert label.partition("@")[2] != world.document.release_id[:12]


def test_a_new_revision_replaces_the_old_one_under_its_name(world):
    world.run(spec(named("polite", 4)))
    world.run(spec(named("polite", 8, "v2"), named("terse", 8)))

    assert (world.answers("polite"), world.answers("terse")) == (["rank 8"] * 2, ["rank 8"] * 2)
    assert world.document.listed == ("polite", "terse")


def test_a_roll_back_leads_to_the_adapters_before_and_is_gated_no_more(world):
    world.run(spec(named("polite", 4)))
    newest = spec(named("polite", 8, "v2"))
    world.run(newest)
    world.pods.asked.clear()

    world.run(newest, "previous", run="back")
    world.run(newest, "previous", run="back")

    assert world.answers("polite") == ["rank 4", "rank 4"]
    assert world.document.sets[0].event == "rolled-back"
    assert None not in {lora for _, lora in world.pods.asked}  # no question of the gate


def test_a_removed_adapter_is_refused_with_the_known_names(world):
    world.run(spec(named("polite", 4), named("terse", 8)))
    world.run(spec(named("terse", 8)))

    with pytest.raises(InputError, match="this release has terse"):
        world.answers("polite")
    assert world.document.listed == ("terse",)


def test_the_last_adapter_can_be_removed(world):
    world.run(spec(named("polite", 4)))

    assert world.run(spec()).data["verdict"] == "passed"
    with pytest.raises(InputError, match="polite"):
        world.answers("polite")
    assert (world.document.listed, [pod.listed for pod in world.pods.ready.values()]) == ((), [[], []])


ONE = spec(named("terse", 8))
TWO = spec(named("polite", 4), named("terse", 8))


@pytest.mark.parametrize("to", ["spec", "previous"])
def test_a_removal_is_not_done_while_a_pod_answers_to_what_left(to, world):
    for asked in (ONE, TWO):
        world.run(asked)
    late = world.pods.ready[max(world.pods.ready)]
    late.blind = True

    with pytest.raises(UnavailableError, match=f"found {late.name}: it still answers to polite"):
        world.run(ONE, to, run="again")
    assert late.answer("polite") == "rank 4"

    late.blind = False
    assert world.run(ONE, to, run="again").data["verdict"] == "passed"
    with pytest.raises(InputError, match="this release has terse"):
        world.answers("polite")
    assert (world.document.leaving, world.document.listed) == ((), ("terse",))


def test_a_replacement_is_not_done_while_a_pod_answers_with_the_old_revision(world):
    world.run(spec(named("polite", 4)))
    late, wanted = world.pods.ready[max(world.pods.ready)], spec(named("polite", 8, "v2"))

    def stop_once_it_has_the_new_one(_):
        late.blind = late.blind or len(late.loaded) > 1

    world.pods.watching = stop_once_it_has_the_new_one
    with pytest.raises(UnavailableError, match=f"found {late.name}: lora_name is 'polite@"):
        world.run(wanted, run="again")
    assert late.answer("polite") == "rank 4"

    world.pods.watching, late.blind = lambda _: None, False
    world.run(wanted, run="again")
    assert world.answers("polite") == ["rank 8", "rank 8"]
    assert world.document.leaving == ()


def test_what_a_killed_run_removed_is_waited_for_by_the_next_run(world):
    world.run(spec(named("polite", 4), named("terse", 8)))
    world.workspace.store.dies_at = (0, "after")
    with pytest.raises(KilledError):
        world.run(ONE, run="killed")
    world.workspace.connection.objects.pop(("Lease", "slipway-demo"), None)
    world.pods.ready[max(world.pods.ready)].blind = True

    with pytest.raises(UnavailableError, match="it still answers to polite"):
        world.run(ONE, run="next")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(2), ids=["as the name goes", "as that is confirmed"])
@pytest.mark.parametrize("to", ["spec", "previous"])
def test_a_kill_at_any_change_of_a_removal_leaves_the_old_or_the_new_names_and_its_next_try_ends_it(
    number, moment, to, world
):
    for asked in (ONE, TWO):
        world.run(asked)
    world.workspace.store.dies_at = (number, moment)
    with pytest.raises(KilledError):
        world.run(ONE, to, run="killed")
    assert world.document.names in (("polite", "terse"), ("terse",))

    world.workspace.connection.objects.pop(("Lease", "slipway-demo"), None)
    world.run(ONE, to, run="killed")
    with pytest.raises(InputError, match="this release has terse"):
        world.answers("polite")
    assert (world.document.leaving, world.document.listed, world.document.trial) == ((), ("terse",), None)


def test_a_run_killed_before_it_ends_the_trial_of_a_lost_pod_tries_no_other(world):
    def leave(pods):
        pods.ready.pop(min(pods.ready))
        pods.watching = lambda _: None

    world.pods.watching = leave
    world.workspace.store.dies_at = (1, "before")
    with pytest.raises(KilledError):
        world.run(spec(named("polite", 4)), run="again")

    assert world.run(spec(named("polite", 4)), run="again").data["verdict"] == "failed"
    assert (world.document.trial, world.document.current) == (None, ())
    assert not [pod for pod in world.pods.ready.values() if pod.loaded]


def test_what_left_and_came_back_is_answered_and_the_rest_is_still_waited_for(world):
    world.run(spec(named("polite", 4)))
    late = world.pods.ready[max(world.pods.ready)]
    late.blind = True
    with pytest.raises(UnavailableError, match="it still answers to polite"):
        world.run(spec())

    late.blind = False
    world.run(spec(named("polite", 4)))
    assert world.answers("polite") == ["rank 4", "rank 4"]
    assert (world.document.leaving, world.document.listed) == ((), ("polite",))


def test_what_is_served_already_changes_nothing(world):
    world.run(spec(named("polite", 4)))
    before = world.document
    world.run(spec(named("polite", 4)))
    assert world.document == before


def test_a_roll_back_needs_other_adapters_before(world):
    with pytest.raises(InputError, match="served no other adapters before"):
        world.run(spec(), "previous")


def test_a_pod_that_starts_has_the_adapters_before_it_is_ready(world):
    world.run(spec(named("polite", 4)))
    world.pods.start("later")
    assert world.pods.ready["later"].adapters["polite"].folder.is_dir()
    assert world.pods.ready["later"].listed == ["polite"]


def test_a_pod_that_restarts_on_trial_starts_without_the_adapter_on_trial(world):
    def restart(pods):
        name = min(pods.ready)
        if pods.ready[name].loaded:
            pods.start(name)
            started.append([*pods.ready[name].adapters])
            pods.watching = lambda pods: None

    started = []
    world.pods.watching = restart
    world.run(spec(named("polite", 4)))
    assert started == [[]]
    assert world.answers("polite") == ["rank 4", "rank 4"]


def test_pods_that_cannot_reach_the_store_keep_the_old_names_everywhere(world):
    world.run(spec(named("polite", 4)))
    second = max(world.pods.ready)
    world.pods.ready[second].blind = True

    with pytest.raises(UnavailableError, match=f"did not take up the adapters in 300 s: found {second}"):
        world.run(spec(named("polite", 8, "v2")), run="again")
    assert world.answers("polite") == ["rank 4", "rank 4"]

    world.pods.ready[second].blind = False
    world.run(spec(named("polite", 8, "v2")), run="again")
    assert world.answers("polite") == ["rank 8", "rank 8"]


WRITES = 4
"""Of the document, when an adapter is replaced and one is added."""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(WRITES))
@pytest.mark.parametrize("again", ["same", "another"], ids=["the same run", "another run"])
def test_a_kill_at_any_change_leaves_the_old_or_the_new_state_and_the_next_run_goes_on(number, moment, again, world):
    world.run(spec(named("polite", 4)))
    wanted = spec(named("polite", 8, "v2"), named("terse", 8))
    world.workspace.store.dies_at = (number, moment)

    with pytest.raises(KilledError):
        world.run(wanted, run="killed")

    assert world.answers("polite") in (["rank 4"] * 2, ["rank 8"] * 2)
    assert set(world.document.listed) <= set(world.document.names)
    world.workspace.connection.objects.pop(("Lease", "slipway-demo"), None)
    world.run(wanted, run="killed" if again == "same" else "next")
    assert (world.answers("polite"), world.answers("terse")) == (["rank 8"] * 2, ["rank 8"] * 2)
    assert world.document.listed == ("polite", "terse")
    assert world.document.trial is None


def test_the_writes_that_may_be_killed_are_all_of_them(world):
    world.run(spec(named("polite", 4)))
    world.workspace.store.dies_at = (WRITES, "before")
    world.run(spec(named("polite", 8, "v2"), named("terse", 8)))
    assert world.workspace.store.dies_at == (0, "before")


def test_a_second_run_is_refused_while_one_holds_the_model(world):
    cluster = world.workspace.connection
    cluster.acquire_lease("slipway-demo", "other", 600)
    with pytest.raises(ConflictError, match="in progress"):
        world.run(spec(named("polite", 4)))


def test_a_release_that_waits_for_approval_keeps_the_model_though_its_lease_has_expired(world):
    uri = world.workspace.layout.release("demo", world.live.id)
    waits = RolloutReconciler.at(uri, replace(world.workspace, dag_run="release__demo/night"), run="night").lock
    waits.acquire()
    world.workspace.clock.sleep(8 * 3600)

    with pytest.raises(ConflictError, match=r"in progress: found run night.*mark Airflow's run release__demo/night"):
        world.run(spec(named("polite", 4)))
    waits.renew()

    ended = {"slipway-demo": world.workspace.connection.lease_holder("slipway-demo").version}
    world.workspace = replace(world.workspace, ended_holders=ended)
    assert world.run(spec(named("polite", 4))).data["verdict"] == "passed"


def test_nothing_is_loaded_where_another_release_went_live_meanwhile(world):
    asked = spec(named("polite", 4))
    request = AdaptersRequest(spec=asked, run="late")
    world.fetch(request)
    released(world.workspace, 2, **BASE)
    with pytest.raises(ConflictError, match="after its adapters were checked"):
        load_adapters.run(request, world.workspace)


@pytest.mark.parametrize(
    "later", [[named("terse", 8)], [named("polite", 5)]], ids=["other adapters", "other questions"]
)
def test_adapters_are_gated_as_the_spec_was_when_they_were_fetched(later, world):
    fetched = AdaptersRequest(spec=spec(named("polite", 4)), run="edited")
    world.fetch(fetched)

    outcome = load_adapters.run(fetched.model_copy(update={"spec": spec(*later)}), world.workspace)

    assert outcome.data["verdict"] == "passed"
    assert world.answers("polite") == ["rank 4", "rank 4"]


def test_each_release_has_adapters_of_its_own(world):
    world.run(spec(named("polite", 4)))
    released(world.workspace, 2, **BASE)
    assert world.workspace.documents.adapters("demo", "demo-000000000002").current == ()
    assert world.document.names == ("polite",)


def test_a_base_that_is_not_live_is_refused(tmp_path, hub):
    workspace = replace(in_memory(tmp_path), site=gpu_site(), connect_hub=lambda: hub)
    request = AdaptersRequest(spec=spec(named("polite", 4)), run="first")
    with pytest.raises(InputError, match="nothing of demo is live"):
        fetch_adapters.run(request, workspace)
    with pytest.raises(InputError, match="nothing of demo is live"):
        load_adapters.run(request, workspace)


def test_an_adapter_above_the_rank_that_the_server_has_room_for_is_refused(world):
    with pytest.raises(InputError, match=r"needs more room than demo-000000000001.*found rank 32, expected at most 16"):
        world.run(spec(named("large", 32)))


def test_an_adapter_of_another_model_is_refused_by_its_matrices(world, hub):
    hub.models["org/polite"]["main"] = adapter_files(4, ("o_proj", "q_proj"))
    shaped = {**SHAPES, "model.layers.0.self_attn.o_proj.weight": (16, 99)}
    folder = world.workspace.scratch / "other"
    (folder / "demo" / "1" / "engine").mkdir(parents=True)
    (folder / "demo" / "1" / "engine" / "engine.json").write_text(
        json.dumps(
            {"architecture": "LlamaForCausalLM", "base": {"shapes": shaped, "modules": list(shaped), "hidden": 16}}
        )
    )
    world.workspace.artifacts.store(
        "publish", world.live.plan.stages["publish"].key, folder, inputs={}, producer={}, metrics={}, seconds=1.0
    )
    with pytest.raises(InputError, match="the model's weight is"):
        world.run(spec(named("polite", 4)))


def test_an_adapter_of_all_experts_at_once_is_judged_by_the_live_models_architecture(world, hub):
    hub.models["org/polite"]["main"] = adapter_files(4, target_parameters=["mlp.experts.gate_up_proj"])

    with pytest.raises(InputError, match="does not apply in LlamaForCausalLM"):
        world.run(spec(named("polite", 4)))
    (added,) = resolve_adapters(spec(named("polite", 4)), world.live, hub, "GptOssForCausalLM")

    assert added.entry.name == "polite"


def test_an_adapter_of_layers_that_the_live_model_does_not_have_is_refused(world, hub):
    hub.models["org/polite"]["main"] = adapter_files(4, ("q_proj", "o_proj"))

    with pytest.raises(InputError, match="adapter polite changes 2 layers that the model does not have"):
        world.run(spec(named("polite", 4)))


def test_pods_of_a_release_with_room_follow_its_adapters_and_others_do_not(world):
    (pod,) = [
        item["spec"]["template"]["spec"]
        for (kind, _), item in world.workspace.connection.objects.items()
        if kind == "Deployment"
    ]
    sidecar = next(each for each in pod["initContainers"] if each["name"] == "adapters")
    assert sidecar["restartPolicy"] == "Always"
    assert "follow-adapters" in sidecar["command"]


def test_a_library_that_an_adapter_names_does_not_reach_the_pods(world, hub):
    named_code = {"auto_mapping": {"base_model_class": "Model", "parent_library": "strange.library"}}
    hub.models["org/polite"]["main"] = adapter_files(4, **named_code)

    world.run(spec(named("polite", 4)))

    (key,) = world.document.needed
    for pod in world.pods.ready.values():
        config = json.loads((pod.folder / key / "adapter_config.json").read_text())
        assert (config["r"], "auto_mapping" in config) == (4, False)


def test_at_a_site_that_verifies_pods_load_what_was_signed_for_their_release_alone(tmp_path, hub):
    key = SigningKey()
    signing = Signing(key_secret="slipway-signing", public_keys=(key.public,))
    asked, world = spec(named("polite", 4)), World(tmp_path, hub)
    world.workspace = replace(world.workspace, site=world.workspace.site.model_copy(update={"signing": signing}))
    for pod in world.pods.ready.values():
        pod.files.workspace = world.workspace
    request = AdaptersRequest(spec=asked, run="signed")
    world.fetch(request)
    pod = min(world.pods.ready.values(), key=lambda pod: pod.name)

    with pytest.raises(UnavailableError, match="this release has no adapters"):
        load_adapters.run(request, world.workspace)
    assert "no signature that can be read" in str(pod.problem)
    sign_adapters.run(request, replace(world.workspace, signing_key=key.private))
    load_adapters.run(request, world.workspace)

    assert pod.answer("polite") == "rank 4"
    assert sign_adapters.run(request, world.workspace)  # a site without the key, to which signed ones were brought


def test_a_run_that_changes_nothing_tells_of_pods_that_started_without_an_adapter(world):
    world.run(spec(named("polite", 4)))
    (key,) = world.document.needed - {""}
    uri = f"{world.workspace.layout.artifact('adapter', key)}/adapter_model.safetensors"
    world.workspace.store.objects[uri] = (b"damaged", None)
    for name, pod in list(world.pods.ready.items()):
        shutil.rmtree(pod.folder)
        world.pods.start(name)

    with pytest.raises(UnavailableError, match="this release has no adapters"):
        world.run(spec(named("polite", 4)), run="again")


def test_no_drill_takes_adapters_from_clients(world):
    def at(release):
        return SimpleNamespace(release=release, model="demo", workspace=world.workspace)

    world.run(spec(named("polite", 4)))
    previous = released(world.workspace, 2, **BASE)

    assert list(drill.lost_adapters(at(world.live), at(previous))) == ["no adapter polite"]
    assert list(drill.lost_adapters(at(previous), at(world.live))) == []


def test_a_roll_back_after_the_signing_key_changed_signs_the_adapters_before(world):
    old, new = SigningKey(), SigningKey()

    def site_accepts(*keys):
        signing = Signing(key_secret="slipway-signing", public_keys=[key.public for key in keys])
        world.workspace = replace(world.workspace, site=world.workspace.site.model_copy(update={"signing": signing}))
        for pod in world.pods.ready.values():
            pod.files.workspace = world.workspace

    def run(asked, key, to="spec"):
        request = AdaptersRequest(spec=asked, run=f"run-{len(world.document.sets)}-{to}", to=to)
        world.fetch(request)
        sign_adapters.run(request, replace(world.workspace, signing_key=key.private))
        return load_adapters.run(request, world.workspace)

    site_accepts(old, new)
    run(spec(named("polite", 4)), old)
    newest = spec(named("polite", 8, "v2"))
    run(newest, new)
    site_accepts(new)
    for name, pod in list(world.pods.ready.items()):
        shutil.rmtree(pod.folder)
        world.pods.start(name)
        world.pods.ready[name].files.workspace = world.workspace

    run(newest, new, "previous")
    assert world.answers("polite") == ["rank 4", "rank 4"]


def test_adapters_that_not_every_pod_loads_are_no_longer_on_trial(world):
    world.pods.ready[max(world.pods.ready)].blind = True
    with pytest.raises(UnavailableError, match="did not take up the adapters"):
        world.run(spec(named("polite", 4)), run="again")
    assert world.document.trial is None

    world.pods.ready[max(world.pods.ready)].blind = False
    assert world.run(spec(named("polite", 4)), run="again").data["verdict"] == "passed"
    assert world.answers("polite") == ["rank 4", "rank 4"]


def test_nothing_is_tried_while_no_pod_is_ready(world):
    world.pods.ready.clear()
    with pytest.raises(UnavailableError, match="no pod of demo-000000000001 is ready"):
        world.run(spec(named("polite", 4)))
    assert world.document.trial is None


GATED = "What are you?"
ENDS = {"as it is loaded": "Hello", "at a question": GATED}


@pytest.mark.parametrize("prompt", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("hangs", [False, True], ids=["its pod is not ready", "its pod hangs"])
def test_an_adapter_that_ends_the_engine_is_tried_at_one_pod_alone(hangs, prompt, world):
    answers, ended = world.pods.ask, []

    def ask(address, request, timeout_s):
        if address.host in ended or (request.lora and request.prompt == prompt):
            ended.append(address.host)
            if not hangs:
                world.pods.ready.pop(address.host, None)
            raise UnavailableError("connection reset")
        return answers(address, request, timeout_s)

    world.pods.ask = ask
    outcome = world.run(spec(named("polite", 4)), run="again")

    assert outcome.data["verdict"] == "failed"
    assert "connection reset" in outcome.summary
    assert (len(set(ended)), world.document.trial, world.document.current) == (1, None, ())


def test_a_pod_on_trial_that_goes_away_has_not_passed(world):
    def leave(pods):
        pods.ready.pop(min(pods.ready))
        pods.watching = lambda _: None

    world.pods.watching = leave
    asked = spec(named("polite", 4))
    assert world.run(asked, run="again").data["verdict"] == "failed"
    assert world.document.trial is None

    world.run(asked)
    assert world.answers("polite") == ["rank 4"]


def test_a_release_planned_again_with_other_adapters_keeps_its_document_and_so_its_warm_pods(world):
    uri = world.workspace.layout.release("demo", world.live.id)

    assert plan._has_spec(spec(named("polite", 4)), uri, world.workspace.documents)


def test_roll_backs_lead_to_no_adapters_where_there_were_none_and_never_past_what_is_kept(world):
    world.run(spec(named("polite", 4)))
    world.run(spec(), "previous")
    with pytest.raises(InputError, match="no adapters"):
        world.answers("polite")
    with pytest.raises(InputError, match="served no other adapters before"):
        world.run(spec(), "previous")

    for rank, revision in ((4, "main"), (8, "v2"), (4, "main"), (8, "v2")):
        world.run(spec(named("polite", rank, revision)))
    assert len(world.document.sets) == 3
    world.run(spec(), "previous")
    world.run(spec(), "previous")
    with pytest.raises(InputError, match="served no other adapters before"):
        world.run(spec(), "previous")
    assert world.answers("polite") == ["rank 8", "rank 8"]


@pytest.mark.parametrize("change", [(), (named("polite", 8, "v2"),)], ids=["removed", "replaced"])
def test_a_run_ends_when_every_pod_has_followed_and_not_before(change, world):
    world.run(spec(named("polite", 4)))
    second = world.pods.ready[max(world.pods.ready)]

    def fall_behind(document):
        second.blind = document["leaving"]

    def catch_up(_):
        waited.extend([1] if second.blind else [])
        second.blind = second.blind and len(waited) < 20

    waited = []
    world.workspace.store.wrote, world.pods.watching = fall_behind, catch_up
    world.run(spec(*change))

    assert len(waited) == 20
    assert world.document.confirmed


def test_a_killed_run_whose_pod_on_trial_is_gone_tries_no_other(world):
    world.workspace.store.dies_at = (0, "after")
    with pytest.raises(KilledError):
        world.run(spec(named("polite", 4)), run="again")
    gone = world.document.trial.pod
    del world.pods.ready[gone]

    outcome = world.run(spec(named("polite", 4)), run="again")
    assert (outcome.data["verdict"], world.document.trial) == ("failed", None)
    assert f"pod {gone}, which tried the adapters, is not ready any more" in outcome.summary
    assert not [pod for pod in world.pods.ready.values() if pod.loaded]
