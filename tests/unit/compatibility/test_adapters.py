"""LoRA adapters planned from one end to the other: resolved and read as the model is, refused where vLLM would."""

import json

import pytest

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import PlanRequest, Source
from slipway.tasks.engines.huggingface.lora import vllm_arguments
from slipway.tasks.steps import plan
from tests.fakes.clock import ManualClock
from tests.fakes.documents.eks_site import eks
from tests.fakes.documents.planned_release import release_of
from tests.fakes.hubs.hub_with_adapters import HubWithAdapters
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

EKS = eks()
SPEC = load_yaml((REPOSITORY / "specs" / "mistral-7b-vllm-a10g.yaml").read_text())
MODEL = SPEC["source"]["repo"]
CONFIG = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "base_model_name_or_path": MODEL}
POLITE = {"name": "polite", "repo": "org/polite"}
TERSE = {"name": "terse", "repo": "org/terse", "revision": "v2"}


def files(weights=b"weights", name="adapter_model.safetensors", **config):
    return {"README.md": b"about", "adapter_config.json": json.dumps({**CONFIG, **config}).encode(), name: weights}


@pytest.fixture
def hub():
    return HubWithAdapters(polite={"main": files()}, terse={"v2": files(b"shorter", r=40)})


@pytest.fixture
def planned(tmp_path, hub):
    """Plan Mistral on vLLM with adapters; the release."""

    def run(*adapters, hub=hub, site=(), **engine):
        spec = {**SPEC, "engine": {**SPEC["engine"], "lora": adapters, **engine}}
        place = Site.model_validate({**EKS, **dict(site)})
        return release_of(ReleaseSpec.model_validate(spec), place, hub, tmp_path)

    return run


def test_adapters_are_pinned_with_their_weights_and_configuration_alone(planned):
    found = planned(TERSE, POLITE).plan

    assert list(found.adapters) == ["polite", "terse"]
    assert isinstance(found.adapters["terse"], Source)
    assert found.adapters["terse"].revision == "v2"
    assert [file.path for file in found.adapters["terse"].files] == ["adapter_config.json", "adapter_model.safetensors"]


def test_what_download_makes_depends_on_the_adapters_files(planned):
    without, one, both = planned(), planned(POLITE), planned(POLITE, TERSE)
    paths = one.plan.stages["download"].fields["files"].keys() - without.plan.stages["download"].fields["files"].keys()

    assert paths == {"lora/polite/adapter_config.json", "lora/polite/adapter_model.safetensors"}
    assert len({each.plan.stages["download"].key for each in (without, one, both)}) == 3
    assert one.plan.stages["build"].fields == without.plan.stages["build"].fields


def test_an_adapter_with_other_weights_is_another_release(planned):
    changed = HubWithAdapters(polite={"main": files(b"better")})

    assert planned(POLITE).id != planned(POLITE, hub=changed).id


def test_adapters_count_in_what_is_downloaded_and_in_scratch(planned):
    without, one = planned().plan, planned(POLITE).plan
    size_bytes = one.adapters["polite"].size_bytes

    assert size_bytes > 0
    assert one.download_bytes == one.estimate.download_bytes == without.estimate.download_bytes + size_bytes
    assert one.estimate.scratch_bytes == without.estimate.scratch_bytes + 2 * size_bytes


@pytest.mark.parametrize(
    ("adapter", "fields"),
    [
        (
            files(name="adapter_model.bin"),
            {"found": "only adapter_model.bin", "expected": "a pickle can run code"},
        ),
        (
            {"adapter_model.safetensors": b"weights"},
            {"what": "adapter polite (org/polite@main) has no adapter_config.json"},
        ),
        (files(peft_type="LOHA"), {"found": "'LOHA'", "expected": "'LORA'"}),
        (files(r=None), {"what": "r in adapter_config.json", "found": "None", "expected": "1 to 512"}),
        (files(r=513), {"found": "513"}),
        (
            files(use_dora=True, modules_to_save=["lm_head"]),
            {"found": "layers trained in full (modules_to_save), DoRA", "remedy": "Merge it"},
        ),
        (files(rank_pattern={"q_proj": 8}), {"found": "ranks that differ between layers"}),
        (files(bias="all"), {"found": "biases (bias all)"}),
        (files(lora_bias=True), {"found": "biases (lora_bias)"}),
        (files(trainable_token_indices=[7]), {"found": "single tokens that were trained"}),
        (files(layer_replication=[[0, 8], [4, 12]]), {"found": "layers of the model that it repeats"}),
        (files(alora_invocation_tokens=[1, 2]), {"found": "begins at certain tokens (aLoRA)"}),
        (files(use_qalora=True, qalora_group_size=16), {"found": "pooled (QALoRA)"}),
        (files(arrow_config={"top_k": 2}), {"found": "a router between adapters (Arrow)"}),
        (
            files(init_lora_weights="pissa_niter_16"),
            {"found": "init_lora_weights pissa_niter_16", "remedy": "Merge it"},
        ),
        (files(init_lora_weights="olora"), {"found": "init_lora_weights olora"}),
        (
            files(target_parameters=["mlp.experts.gate_up_proj"]),
            {"what": "experts in one parameter", "expected": "GptOssForCausalLM", "remedy": "Merge"},
        ),
        (files(lora_alpha="32"), {"what": "has no scale: lora_alpha", "found": "'32'"}),
        (files(lora_alpha=None), {"what": "has no scale: lora_alpha", "found": "None"}),
    ],
)
def test_an_adapter_that_vllm_cannot_serve_is_refused_before_any_pod(planned, adapter, fields):
    with refused(**fields):
        planned(POLITE, hub=HubWithAdapters(polite={"main": adapter}))


@pytest.mark.parametrize("initial", [True, False, "gaussian", "eva", "lora_ga"])
def test_how_an_adapter_began_does_not_matter_where_the_model_was_left_alone(planned, caplog, initial):
    of_training = {
        "layers_to_transform": [0, 1],
        "exclude_modules": ["lm_head"],
        "lora_dropout": 0.1,
        "use_rslora": True,
    }
    hub = HubWithAdapters(polite={"main": files(init_lora_weights=initial, **of_training)})

    assert planned(POLITE, hub=hub).plan.adapters
    assert "not known" not in caplog.text


def test_a_field_of_a_later_peft_is_a_warning_by_its_name(planned, caplog):
    hub = HubWithAdapters(polite={"main": files(use_something_new=True, use_something_else=False)})

    assert planned(POLITE, hub=hub).plan.adapters
    assert "adapter polite says use_something_new in adapter_config.json, which is not known" in caplog.text


def test_an_adapter_of_another_model_is_taken_with_a_warning(planned, caplog):
    hub = HubWithAdapters(polite={"main": files(base_model_name_or_path="org/other")})

    assert planned(POLITE, hub=hub).plan.adapters
    assert "adapter polite names org/other as its base model" in caplog.text


def test_an_adapter_of_this_model_is_taken_without_one(planned, caplog):
    planned(POLITE)

    assert "trained on" not in caplog.text


def test_adapters_that_a_gpu_has_no_room_for_are_refused(planned):
    high = HubWithAdapters(polite={"main": files(r=512)}, terse={"v2": files(r=512)})

    with refused(what="adapters 5.0, ", remedy="options.max_loras 1"):
        planned(POLITE, TERSE, hub=high, max_batch_size=4)


def test_room_for_adapters_that_there_are_none_of_is_refused(planned):
    with refused(what="engine.options.max_loras has no effect"):
        planned(options={"max_loras": 2})


ROOM = {"max_loras": 2, "max_lora_rank": 12}
IMAGE = EKS["images"]["serving"]["vllm"].replace("26.07", "26.08")
LATER = {"images": {**EKS["images"], "serving": {**EKS["images"]["serving"], "vllm": IMAGE}}}
"""A site whose vLLM keeps adapters apart that are loaded while requests run."""


def test_a_server_has_room_for_adapters_of_its_live_model_and_a_slot_for_the_next_version_of_one(planned):
    made = planned(site=LATER, options=ROOM).spec

    assert vllm_arguments(made, {}) == {"enable_lora": True, "max_loras": 3, "max_cpu_loras": 4, "max_lora_rank": 16}
    assert vllm_arguments(made, {"own": 64})["max_lora_rank"] == 64


def test_room_for_no_number_of_adapters_is_refused(planned):
    with refused(what="it is not said for how many"):
        planned(options={"max_lora_rank": 8})


def test_room_for_adapters_of_a_live_model_counts_as_memory(planned):
    with refused(what="adapters 5.0, "):
        planned(site=LATER, max_batch_size=4, options={"max_loras": 1, "max_lora_rank": 512})


def test_room_is_refused_where_vllm_answers_with_another_adapter_while_one_is_loaded(planned):
    with refused(what="vLLM 0.24.0", expected="vLLM 0.27.1 or later", remedy="Triton 26.08, or remove max_lora_rank"):
        planned(options=ROOM)


def test_plan_says_what_adapters_would_change_and_a_wrong_one_is_no_reason_to_refuse_the_release(hub, tmp_path):
    def changes(name, **options):
        smoke = [{"prompt": "Hello?", "answer": "Good day."}]
        named = {"name": name, "repo": f"org/{name}", "revision": "v2" if name == "terse" else "main", "smoke": smoke}
        engine = {**SPEC["engine"], "options": {**ROOM, **options}}
        spec = ReleaseSpec.model_validate({**SPEC, "engine": engine, "adapters": [named]})
        workspace = Workspace(
            Site.model_validate({**EKS, **LATER}),
            MemoryObjectStore(),
            ManualClock(),
            tmp_path,
            REPOSITORY,
            lambda: hub,
            lambda _: 2**45,
        )
        (line,) = plan.look(PlanRequest(spec=spec, run="run-1"), workspace).adapters
        return line

    assert changes("polite", max_lora_rank=16).startswith("+ polite org/polite@")
    assert "found rank 16, expected at most 12" in changes("polite")
    assert changes("missing").startswith("! ")
