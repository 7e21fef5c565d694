"""Specs of GPU engines planned from one end to the other, against the site and the public models they are written for."""

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.engine.engine_kinds import kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.fit.step_needs import gpus_to_hold
from slipway.tasks.contracts.site.site import Gpu, Site
from slipway.tasks.contracts.spec.migrate import migrate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.engines.preflight.memory_fit import GIB
from tests.fakes.documents.eks_site import eks
from tests.fakes.documents.planned_release import release_of
from tests.fakes.hubs.public_hub import PublicHub
from tests.fakes.releases import release
from tests.fakes.store.object_store import MemoryObjectStore
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

SPECS = sorted(file.stem for file in (REPOSITORY / "specs").glob("*.yaml") if "kind: openvino" not in file.read_text())
EKS = eks()
for each in EKS["gpus"].values():
    each.pop("nodes", None)  # these sites have other GPUs and shapes than Karpenter's table of instance types
AWQ, MULTINODE, FP8, VLLM = "llama-3-8b-awq-l4", "llama-3-8b-tp4pp2-a10g", "qwen-llmapi-fp8", "mistral-7b-vllm-a10g"


def document(name):
    return load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text())


def asked(name, **changes):
    """A spec that ships, with fields of its sections changed."""
    data = document(name)
    for section, fields in changes.items():
        data[section] = {**data.get(section, {}), **fields}
    return read_contract(ReleaseSpec, data, name)


@pytest.fixture
def planned(tmp_path):
    """Plan against the site that ships, with sections replaced; the release."""

    def run(spec, hub=None, store=None, **site):
        return release_of(spec, Site.model_validate({**EKS, **site}), hub or PublicHub(), tmp_path, store)

    return run


@pytest.mark.parametrize("name", SPECS)
def test_every_spec_that_ships_is_planned(planned, name):
    release = planned(asked(name))

    assert len(release.plan.missing) == 5
    assert release.plan.stages["download"].fields["files"]


@pytest.mark.parametrize("name", SPECS)
def test_a_server_that_ends_waits_for_an_answer_as_long_as_the_gate_allows_one_to_take(name):
    """The longest answer to the longest prompt, at the slowest pace that the gate lets pass."""
    spec = asked(name)
    tokens = spec.engine.max_sequence_tokens - spec.engine.max_input_tokens
    (itl_ms,) = {line.at_most for line in spec.gate.expect if line.metric == "itl_ms"}

    assert spec.drain_s >= tokens * itl_ms / 1000
    assert spec.drain_s >= spec.gate.benchmark.request_timeout_s


def test_an_engines_keys_hold_what_it_is_bound_to(planned):
    fields = planned(asked(AWQ)).plan.stages["build"].fields

    assert fields["producer"] == {
        "image": EKS["images"]["serving"]["trt-engine"],
        "tensorrt_llm": "1.2.1",
        "tensorrt": "10.14.1.48",
        "gpu_architecture": "sm_89",
        "ranks": "tp1 pp1",
    }
    assert fields["engine"]["max_batch_size"] == 16


def test_weights_are_split_anew_when_ranks_change(planned):
    four, two = (
        planned(asked(MULTINODE, engine={"tensor_parallel": tensor, "pipeline_parallel": pipeline}))
        for tensor, pipeline in [(4, 2), (2, 4)]
    )

    assert four.plan.stages["quantize"].key != two.plan.stages["quantize"].key


def test_an_engine_of_another_image_or_limit_is_another_engine_of_the_same_weights(planned):
    first, longer = (planned(asked(AWQ, engine={"max_sequence_tokens": tokens})) for tokens in (4096, 4000))

    assert first.plan.stages["quantize"].key == longer.plan.stages["quantize"].key
    assert first.plan.stages["build"].key != longer.plan.stages["build"].key


@pytest.mark.parametrize("name", [FP8, VLLM])
def test_a_checkpoint_that_is_loaded_is_the_same_for_every_gpu(planned, name):
    gpus = ("NVIDIA-L4", "NVIDIA-H100-80GB-HBM3")
    keys = {planned(asked(name, engine={"gpu": gpu})).plan.stages["quantize"].key for gpu in gpus}

    assert len(keys) == 1


def test_an_engine_is_quantized_for_its_gpu(planned):
    gpus = ("NVIDIA-L4", "NVIDIA-H100-80GB-HBM3")
    keys = {planned(asked(AWQ, engine={"gpu": gpu})).plan.stages["quantize"].key for gpu in gpus}

    assert len(keys) == 2


LARGE = "llama-3-70b-fp8-h100x4"
H100 = "NVIDIA-H100-80GB-HBM3"
NARROW = {name: {**gpu, "per_node": 1} for name, gpu in EKS["gpus"].items()}

ROOMY = {**EKS["shapes"], "gpu": {**EKS["shapes"]["gpu"], "memory": "256Gi"}}


def four_bits(kind="trt-engine", **engine):
    """Llama 3 70B, small enough for one H100 once it is quantized, and twice as large as one before."""
    return asked(
        LARGE,
        quantization={"format": "int4_awq", "kv_cache": "none"},
        engine={"kind": kind, "tensor_parallel": 1, "max_batch_size": 4, **engine},
    )


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
def test_weights_that_one_gpu_holds_only_once_they_are_quantized_are_planned_onto_several(planned, kind):
    held = planned(four_bits(kind), shapes=ROOMY).plan.estimate.gpu_bytes

    assert held / GIB == pytest.approx(131.4, abs=0.1)
    assert gpus_to_hold(held, Gpu(**EKS["gpus"][H100])) == 2


@pytest.mark.parametrize("kind", ["trt-engine", "llmapi"])
def test_weights_that_no_node_holds_before_they_are_quantized_are_refused_before_they_are_downloaded(planned, kind):
    with refused(what="131.4 GiB of weights before", found="1 on a node of site eks"):
        planned(four_bits(kind), gpus=NARROW)


def test_gpus_of_the_site_that_would_hold_the_weights_are_named(planned):
    larger = {"memory_gib": 179.0, "per_node": 1, "architecture": "sm_90"}
    gpus = {**NARROW, "NVIDIA-LARGE": larger, "NVIDIA-NEW": {**larger, "architecture": "sm_100"}}

    with refused(remedy="What would hold them: engine.gpu NVIDIA-LARGE."):
        planned(four_bits(), gpus=gpus)
    assert planned(four_bits(gpu="NVIDIA-LARGE"), gpus=gpus).plan.missing


def test_weights_that_keep_their_precision_are_split_by_the_host(planned):
    assert planned(asked(MULTINODE)).plan.estimate.gpu_bytes == 0


CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
IMAGE = "nvcr.io/nvidia/tritonserver:{}-trtllm-python-py3"
DIGEST = "d" * 64


@pytest.mark.parametrize(
    ("name", "changes", "fields"),
    [
        (
            AWQ,
            {"quantization": {"format": "fp8"}, "engine": {"gpu": "NVIDIA-A10G"}},
            {"what": "fp8 does not run on NVIDIA-A10G", "expected": "int8_sq, int4_awq"},
        ),
        (
            AWQ,
            {"quantization": {"format": "nvfp4"}, "engine": {"gpu": "NVIDIA-H100-80GB-HBM3"}},
            {"what": "nvfp4 does not run", "remedy": "sm_100"},
        ),
        (
            AWQ,
            {"serving": {"image": IMAGE.format("26.10")}},
            {"found": "Triton 26.10, which is not in", "remedy": "slipway migrate"},
        ),
        (
            AWQ,
            {"serving": {"image": "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc25"}},
            {"found": "no engines since 1.3.0rc21"},
        ),
        (
            MULTINODE,
            {"serving": {"image": f"{IMAGE.format(26.07)}@sha256:{DIGEST}"}},
            {"what": "on 2 nodes", "remedy": "Remove serving.image"},
        ),
        (MULTINODE, {"engine": {"tensor_parallel": 2, "pipeline_parallel": 3}}, {"what": "evenly over whole nodes"}),
        (VLLM, {"engine": {"tensor_parallel": 4, "pipeline_parallel": 2}}, {"what": "vllm is served on one node"}),
        (AWQ, {"engine": {"max_sequence_tokens": 9000}}, {"found": "9000", "expected": "at most 8192"}),
        (MULTINODE, {"engine": {"options": {"chat_template": "apply"}}}, {"what": "has no chat template"}),
        (AWQ, {"engine": {"options": {"paged": True}}}, {"what": "engine.options.paged", "expected": "chat_template"}),
        (
            AWQ,
            {"engine": {"options": {"guided_decoding_backend": "llguidance"}}},
            {"what": "engine.options.guided_decoding_backend", "expected": "xgrammar"},
        ),
        (
            VLLM,
            {"engine": {"options": {"chat_template": "sometimes"}}},
            {"what": "engine.options.chat_template", "expected": "apply or none"},
        ),
        (AWQ, {"engine": {"options": {"max_num_tokens": 100}}}, {"what": "max_num_tokens is too low", "found": "100"}),
        (AWQ, {"quantization": {"calibration": None}}, {"what": "calibration is missing: int4_awq"}),
        (VLLM, {"quantization": {"calibration": CALIBRATION}}, {"what": "none reads no texts"}),
        (
            VLLM,
            {"quantization": {"kv_cache": "fp8", "calibration": CALIBRATION}, "engine": {"gpu": "NVIDIA-L4"}},
            {"what": "none reads no texts"},
        ),
        (
            AWQ,
            {"gate": {"quality": {"dataset": CALIBRATION["dataset"], "perplexity": CALIBRATION["dataset"]}}},
            {"what": "no logits"},
        ),
    ],
)
def test_what_cannot_work_is_refused_before_any_pod(planned, name, changes, fields):
    with refused(**fields):
        planned(asked(name, **changes))


QWEN = {"repo": "Qwen/Qwen2.5-7B-Instruct"}
A10G = {"gpu": "NVIDIA-A10G"}
L4 = {"gpu": "NVIDIA-L4"}


def smaller(gpu, memory_gib, **facts):
    """Sections of a site where this GPU has less memory."""
    return {"gpus": {**EKS["gpus"], gpu: {**EKS["gpus"][gpu], "memory_gib": memory_gib, **facts}}}


WITHOUT_MODELOPT = {"images": {**EKS["images"], "modelopt": None}}


def with_remedy(data, remedy):
    """The document of a spec with what a refusal proposes: `field value`, with or without a calibration set."""
    change, _, calibration = remedy.partition(" with")
    field, value = change.split()
    section = "quantization" if field in ("kv_cache", "format") else "engine"
    changed = {**data[section]}
    if field.startswith("options."):
        changed["options"] = {**changed.get("options", {}), field.removeprefix("options."): int(value)}
    else:
        changed[field] = int(value) if value.isdigit() else value
    if calibration:
        changed["calibration"] = None if calibration.startswith("out") else {**CALIBRATION, "samples": 1}
    return {**data, section: changed}


@pytest.mark.parametrize(
    ("name", "changes", "site", "remedies"),
    [
        (
            AWQ,
            {"engine": {"max_sequence_tokens": 8192}},
            smaller("NVIDIA-L4", 8.0, per_node=4),
            ["max_sequence_tokens 7344", "kv_cache fp8", "kv_cache int8", "tensor_parallel 2"],
        ),
        (
            MULTINODE,
            {"engine": {**A10G, "tensor_parallel": 1, "pipeline_parallel": 1, "max_sequence_tokens": 8192}},
            smaller("NVIDIA-A10G", 17),
            [
                *("max_sequence_tokens 2602", "format int8_wo", "format int4_wo", "format int8_sq with calibration"),
                *("format int4_awq with calibration", "tensor_parallel 2"),
            ],
        ),
        # twice as many ranks are two nodes, and llmapi is served on one
        (
            FP8,
            {
                "quantization": {"format": "none", "calibration": None},
                "engine": {**A10G, "tensor_parallel": 2, "pipeline_parallel": 2},
            },
            smaller("NVIDIA-A10G", 6),
            ["format int4_awq with calibration"],
        ),
        (
            VLLM,
            {"engine": L4},
            smaller("NVIDIA-L4", 17.4),
            [
                *("max_sequence_tokens 3954", "kv_cache fp8", "format fp8 with calibration", "format fp8_online"),
                "format nvfp4 with calibration",
            ],
        ),
        (
            VLLM,
            {"engine": L4},
            {**smaller("NVIDIA-L4", 17.4), **WITHOUT_MODELOPT},
            ["max_sequence_tokens 3954", "kv_cache fp8", "format fp8_online"],
        ),
        # in a group ranks are as many as the GPUs that the spec names
        (
            "mistral-7b",
            {"engine": {"max_sequence_tokens": 4096}},
            smaller("NVIDIA-A10G", 17.4),
            ["max_sequence_tokens 3958", "format fp8_online"],
        ),
    ],
)
def test_the_remedies_that_are_named_do_fit(planned, name, changes, site, remedies):
    wrong = asked(name, **changes)
    with pytest.raises(InputError) as refusal:
        planned(wrong, **site)

    named = refusal.value.remedy.partition("What would fit: ")[2].rstrip(".").split("; ")

    assert named == remedies
    for remedy in named:
        data = with_remedy(wrong.model_dump(mode="json"), remedy)
        assert planned(read_contract(ReleaseSpec, data, remedy), **site).plan.missing


@pytest.mark.parametrize(
    ("name", "config", "fields"),
    [
        (AWQ, {"quantization_config": {"quant_method": "gptq"}}, {"found": "gptq", "remedy": "llmapi or vllm"}),
        (FP8, {"quantization_config": {"quant_algo": "FP8"}}, {"what": "is already quantized", "found": "FP8"}),
        (MULTINODE, {"quantization_config": {"quant_method": "awq"}}, {"found": "awq", "expected": "16-bit weights"}),
        (
            MULTINODE,
            {"architectures": ["MambaForCausalLM"]},
            {"found": "MambaForCausalLM", "expected": "LlamaForCausalLM"},
        ),
        (VLLM, {"num_hidden_layers": "many"}, {"what": "num_hidden_layers", "found": "many"}),
    ],
)
def test_what_a_model_says_of_itself_is_heard(planned, name, config, fields):
    with refused(**fields):
        planned(asked(name), PublicHub(**config))


@pytest.mark.parametrize("name", [AWQ, FP8, VLLM])
def test_a_model_whose_size_plan_cannot_tell_is_released_with_a_warning(planned, caplog, name):
    plan = planned(asked(name), PublicHub(num_hidden_layers=None)).plan

    assert plan.missing
    warning = plan.warnings[0]
    assert warning in caplog.text
    assert "plan cannot tell whether" in warning
    assert "config.json has no num_hidden_layers" in warning


def test_a_batch_that_the_cache_cannot_hold_at_once_is_released_with_a_warning(planned, caplog):
    warning, _ = planned(asked(AWQ, engine={"max_batch_size": 64})).plan.warnings

    assert warning in caplog.text
    assert "the KV cache on NVIDIA-L4 holds 27 of max_batch_size 64 sequences of 4096 tokens" in warning
    assert not any("holds" in each for each in planned(asked(AWQ, engine={"max_batch_size": 27})).plan.warnings)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (AWQ, "quantization.format int4_awq → fp8_online, quantization.calibration (removed)"),
        (FP8, "`slipway migrate --to vllm` changes nothing else"),
        (MULTINODE, "`slipway migrate --to vllm` does not help yet: engine.tensor_parallel 4 x pipeline_parallel 2"),
    ],
)
def test_a_kind_that_no_later_image_has_is_warned_of_in_one_line_with_what_migrating_makes_of_the_spec(
    planned, name, words
):
    spec = asked(name)
    (warning,) = [each for each in planned(spec).plan.warnings if " ends with " in each]

    assert warning.startswith(f"{spec.engine.kind} ends with Triton 26.07 (TensorRT-LLM 1.2.1)")
    assert words in warning
    assert "\n" not in warning


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (AWQ, "trt-engine, as recommended: TensorRT-LLM 1.2.1 knows LlamaForCausalLM"),
        (VLLM, "vllm, as the spec says; trt-engine is recommended: TensorRT-LLM 1.2.1 knows MistralForCausalLM"),
    ],
)
def test_the_kind_of_the_spec_is_planned_beside_the_recommended_one(planned, name, words):
    plan = planned(asked(name)).plan

    assert plan.engine_kind.startswith(words)
    assert plan.missing


def test_a_kind_that_the_newest_image_has_is_not_warned_of(planned):
    assert planned(asked(VLLM)).plan.warnings == ()


def test_a_refusal_comes_without_warnings_about_the_changes_that_it_proposes(planned, caplog):
    with refused(remedy="max_sequence_tokens 3954"):
        planned(asked(VLLM, engine=L4), **smaller("NVIDIA-L4", 17.4))
    assert "the KV cache" not in caplog.text


GEMMA_3 = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "num_attention_heads": 16,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "sliding_window": 1024,
    },
    **dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")),
    **dict.fromkeys(("num_key_value_heads", "max_position_embeddings", "tie_word_embeddings")),
}
"""config.json of google/gemma-3-12b-it in place of a model's own; None removes a field."""


def test_gemma_3_is_planned_with_the_defaults_that_its_configuration_leaves_out(planned, caplog):
    longer = asked(VLLM, engine={"max_sequence_tokens": 36_000})

    assert planned(longer, PublicHub(**GEMMA_3)).plan.missing
    assert "plan cannot tell" not in caplog.text
    with refused(found="200000", expected="at most 131072"):
        planned(asked(VLLM, engine={"max_sequence_tokens": 200_000}), PublicHub(**GEMMA_3))


def test_a_calibration_set_shorter_than_asked_is_refused_before_the_model_is_downloaded(planned):
    with refused(found="127 texts", expected="128"):
        planned(asked(AWQ), PublicHub(lines=127))
    assert planned(asked(AWQ), PublicHub(lines=128)).plan.missing


def as_it_is(name, gpu):
    engine = {"gpu": gpu, "max_batch_size": 4}
    return asked(name, quantization={"format": "none", "calibration": None}, engine=engine)


def by_modelopt(algorithm):
    """A Hub whose models ModelOpt 0.47 has quantized, which it says in both files."""
    return PublicHub(quantization_config={"quant_method": "modelopt", "quant_algo": algorithm})


@pytest.mark.parametrize(
    ("name", "gpu", "algorithm"),
    [(VLLM, "NVIDIA-L4", "FP8"), (FP8, "NVIDIA-L4", "W4A8_AWQ"), (FP8, "NVIDIA-A10G", "W4A16_AWQ")],
)
def test_a_checkpoint_of_modelopt_that_the_gpu_has_arithmetic_for_is_served_as_it_is(planned, name, gpu, algorithm):
    assert planned(as_it_is(name, gpu), by_modelopt(algorithm)).plan.missing


@pytest.mark.parametrize(
    ("name", "gpu", "algorithm", "fields"),
    [
        (VLLM, "NVIDIA-A10G", "FP8", {"what": "(FP8): format fp8 does not run on NVIDIA-A10G", "remedy": "sm_89"}),
        (FP8, "NVIDIA-L4", "NVFP4", {"expected": "fp8", "remedy": "sm_100"}),
        (FP8, "NVIDIA-L4", "MIXED_PRECISION", {"what": "format modelopt MIXED_PRECISION", "expected": "fp8"}),
    ],
)
def test_a_checkpoint_of_modelopt_that_the_gpu_has_no_arithmetic_for_is_refused(planned, name, gpu, algorithm, fields):
    with refused(**fields):
        planned(as_it_is(name, gpu), by_modelopt(algorithm))


def test_what_modelopt_says_in_a_file_of_its_own_is_read_and_downloaded(planned):
    hub = PublicHub(hf_quant_config={"quantization": {"quant_algo": "FP8"}})

    with refused(what="fp8 does not run on NVIDIA-A10G"):
        planned(as_it_is(VLLM, "NVIDIA-A10G"), hub)
    assert "hf_quant_config.json" in planned(as_it_is(VLLM, "NVIDIA-L4"), hub).plan.stages["download"].fields["files"]


@pytest.mark.parametrize(
    ("name", "site", "fields"),
    [
        (FP8, {"images": {**EKS["images"], "modelopt": None}}, {"remedy": "Add images.modelopt"}),
        (AWQ, {"images": {"tasks": "t", "serving": {}}}, {"what": "no serving image for trt-engine"}),
        (
            AWQ,
            {"shapes": {**EKS["shapes"], "gpu": {**EKS["shapes"]["gpu"], "memory": "8Gi"}}},
            {"what": "needs about 13.", "found": "8Gi in shapes.gpu.memory"},
        ),
        (
            AWQ,
            {"gpus": {"NVIDIA-L4": {**EKS["gpus"]["NVIDIA-L4"], "driver": "550.54.15"}}},
            {"found": "550.54.15", "expected": "580 or later"},
        ),
        (
            MULTINODE,
            {"images": {**EKS["images"], "multinode": "triton-multinode:26.02"}},
            {"found": "26.02, which contains trtllm 1.1.0"},
        ),
    ],
)
def test_what_the_site_lacks_is_refused_by_name(planned, name, site, fields):
    with refused(**fields):
        planned(asked(name), **site)


TRTLLM = "example.com/slipway/tasks-gpu:0.1.0-26.07-trtllm"


@pytest.mark.parametrize(
    ("name", "field", "images"),
    [
        (AWQ, "images.serving.trt-engine", {"serving": {"trt-engine": TRTLLM}}),
        (FP8, "images.serving.llmapi", {"serving": {"llmapi": f"{TRTLLM}@sha256:DIGEST"}}),
        (FP8, "images.modelopt", {"modelopt": "example.com/slipway/tasks-modelopt:0.1.0"}),
    ],
)
def test_an_image_by_tag_alone_is_refused_for_a_key_would_not_tell_two_of_them_apart(planned, name, field, images):
    with refused(what=f"{field} names an image by its tag", expected="@sha256: and 64 hex", remedy="`crane digest"):
        planned(asked(name), images={**EKS["images"], **images})


def test_an_image_of_the_spec_is_refused_by_tag_alone_too(planned):
    with refused(what="serving.image names", found="nvcr"):
        planned(asked(AWQ, serving={"image": IMAGE.format("26.07")}))


def test_another_image_under_the_same_tag_is_another_engine(planned):
    first, rebuilt = (
        planned(asked(AWQ), images={**EKS["images"], "serving": {"trt-engine": f"{TRTLLM}@sha256:{digit * 64}"}})
        for digit in "ab"
    )

    assert first.plan.stages["quantize"].key != rebuilt.plan.stages["quantize"].key
    assert first.plan.stages["build"].key != rebuilt.plan.stages["build"].key


def test_the_site_that_ships_says_what_to_fill_in(planned):
    images = load_yaml((REPOSITORY / "sites" / "eks.yaml").read_text())["images"]

    with refused(found="DIGEST", expected="64 hex digits"):
        planned(asked(AWQ), images=images)


def live(spec, store):
    """Make the spec's model live in `store` as promote would."""
    made = release(name=spec.name).model_copy(update={"spec": spec})
    uri = f"s3://{EKS['object_store']['bucket']}/releases/{made.id}.json"
    store.put_bytes(uri, made.model_dump_json().encode())
    channel = Channel(name=spec.name).promoted(made.id, uri, at=made.created_at, run="r", keep=1)
    root = Site.model_validate(EKS).object_store.root
    store.put_bytes(Layout(root).channel(spec.name), channel.model_dump_json().encode())


def test_a_model_whose_gpu_another_one_of_its_group_has_is_refused_before_any_pod(planned):
    store = MemoryObjectStore()
    live(asked("llama-2-7b"), store)

    with refused(what="GPU 0 of group chat-models", found="mistral-7b and llama-2-7b"):
        planned(asked("mistral-7b", serving={"gpus": [0]}), store=store)
    assert planned(asked("mistral-7b"), store=store).plan.missing


def test_a_name_too_long_for_the_labels_of_several_nodes_is_refused_before_any_pod(planned):
    spec = asked(MULTINODE)

    with refused(expected="at most 37 characters"):
        planned(spec.model_copy(update={"name": "a" * 38}))


def test_a_number_of_replicas_that_is_not_used_yet_is_warned_of(planned, caplog):
    release = planned(asked(AWQ, serving={"replicas": {"min": 1, "max": 5}}))

    words = "serving.replicas.max 5 is a bound of serving.autoscale, which is absent; 1 replica will serve"
    assert words in caplog.text
    assert words in release.plan.warnings


@pytest.mark.parametrize("rollout", [{}, {"strategy": "canary", "bake_s": 60}])
def test_routes_that_the_site_does_not_have_are_refused_before_any_pod(planned, rollout):
    with refused(what="serving.exposure ingress", remedy="with your own Ingress"):
        planned(asked(AWQ, serving={"exposure": "ingress"}, rollout=rollout))


WEIGHTS_ONLY = {"format": "int8_wo", "kv_cache": "none", "calibration": None}


def test_a_format_that_llmapi_does_not_serve_is_refused_with_formats_that_plan_takes(planned):
    with pytest.raises(InputError) as caught:
        asked("qwen-llmapi-fp8", quantization=WEIGHTS_ONLY)

    formats, calibrated = (
        part.partition(" need ")[0].split(", ")
        for part in caught.value.what.partition("choose one of ")[2].split("; of these, ")
    )
    assert "engine llmapi cannot serve format int8_wo" in caught.value.what
    assert "int4_awq" in calibrated
    for name in (name for name in formats if name in ("none", "fp8", "int4_awq")):
        quantization = {"format": name, "calibration": CALIBRATION if name in calibrated else None}
        # weights that keep 16 bits leave less room
        assert planned(asked("qwen-llmapi-fp8", quantization=quantization, engine={"max_batch_size": 8})).plan.missing


@pytest.mark.parametrize("quantization", ["int8_wo", "int4_wo", "int8_sq"])
@pytest.mark.parametrize("calibration", [None, CALIBRATION])
def test_what_migration_puts_in_place_of_an_8_bit_format_is_planned(planned, quantization, calibration):
    data = asked(AWQ, quantization={"format": quantization, "calibration": calibration}).model_dump(mode="json")
    data["engine"]["max_batch_size"] = 1  # weights that keep 16 bits leave less room

    migrated = migrate(read_contract(ReleaseSpec, data, quantization), data, "llmapi").document

    assert migrated["quantization"]["format"] == ("int4_awq" if calibration else "none")
    assert planned(read_contract(ReleaseSpec, migrated, "migrated")).plan.missing


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("to", kinds_with("on_gpu"))
def test_a_spec_that_ships_is_planned_as_another_kind_or_refused_by_name(planned, name, to):
    data, spec = document(name), asked(name)
    if spec.engine.kind == to:
        return
    migrated = read_contract(ReleaseSpec, migrate(spec, data, to).document, name)

    try:
        assert planned(migrated).plan.missing
    except InputError as error:
        refusal = error
    else:
        return
    assert any(each in f"{refusal.what} {refusal.found}" for each in (to, "ModelOpt", "GiB", "several GPUs")), refusal


NEWER = {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}
PER_LAYER = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}


@pytest.mark.parametrize("name", [AWQ, FP8, "llama-3-8b-tp4pp2-a10g", VLLM])
def test_positions_that_transformers_5_wrote_are_planned_for_every_engine(planned, name):
    assert planned(asked(name), PublicHub(**NEWER)).plan.missing


@pytest.mark.parametrize("name", [AWQ, FP8])
@pytest.mark.parametrize("rope", [PER_LAYER, {**NEWER, "rope_theta": 10000.0}])
def test_positions_that_the_runtimes_transformers_reads_otherwise_are_refused_before_any_pod(planned, name, rope):
    with refused(what="transformers 4 of the serving runtime reads a different rope", remedy="Choose a revision"):
        planned(asked(name), PublicHub(**rope))


FOUR_RANKS = {"gpu": "NVIDIA-H100-80GB-HBM3", "tensor_parallel": 4}
WITH_EXPERTS = {"num_experts": 64, "moe_intermediate_size": 768}


@pytest.mark.parametrize("engine", [{"expert_parallel": 2}, {"attention_dp": True}])
def test_experts_of_a_model_without_any_are_refused_by_plan(planned, engine):
    with refused(what="is for mixtures of experts"):
        planned(asked(FP8, engine={**FOUR_RANKS, **engine}))


def test_a_mixture_of_experts_is_planned_over_ranks(planned):
    spec = asked(FP8, engine={**FOUR_RANKS, "expert_parallel": 4, "attention_dp": True})

    assert planned(spec, hub=PublicHub(**WITH_EXPERTS)).spec.engine.expert_parallel == 4


def test_quantize_has_no_flag_that_shares_out_experts(planned):
    with refused(what="engine.expert_parallel needs weights that keep their precision", remedy="format none"):
        planned(asked(AWQ, engine={**FOUR_RANKS, "expert_parallel": 2}), hub=PublicHub(**WITH_EXPERTS))


def test_tensorrt_llm_keeps_nothing_on_the_host_where_prompts_share_nothing(planned):
    options = {"kv_cache_host_gib": 1, "prefix_caching": False}
    with refused(what="kv_cache_host_gib has no effect", found="prefix_caching false"):
        planned(asked(FP8, engine={"options": options}))


@pytest.mark.parametrize("name", [AWQ, FP8, VLLM])
def test_options_of_cache_and_prompts_are_planned_for_every_gpu_kind(planned, name):
    options = {"kv_cache_host_gib": 2, "chunked_prefill": True, "max_num_tokens": 1024}

    assert planned(asked(name, engine={"options": options})).spec.engine.options == options


def test_the_llm_api_over_two_nodes_is_planned_and_booted_by_no_step(planned):
    engine = {"gpu": "NVIDIA-A10G", "tensor_parallel": 4, "pipeline_parallel": 2}
    spec = asked(FP8, engine=engine, quantization={"format": "none", "calibration": None})
    resolved = ResolvedRelease(planned(spec).spec, Site.model_validate(EKS))

    assert (resolved.serving.nodes, resolved.serving.shape.gpus) == (2, 4)
    assert resolved.serving.image == EKS["images"]["multinode"]
    assert resolved.step_gpus("assemble") == 0
