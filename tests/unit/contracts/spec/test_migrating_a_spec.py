"""A spec of one engine kind that runs on GPUs, rewritten for another."""

import copy
from itertools import permutations

import pytest

from slipway.cli.files.migrate import Target
from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, kinds_with
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.migrate import INSTEAD, STORED_BITS, migrate
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.fakes.releases import EVERY_PARAMETER, SPEC
from tests.support.paths import REPOSITORY
from tests.support.refused import refused
from tests.support.yaml_documents import load_yaml

CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
ON_GPUS = kinds_with("on_gpu")
PAIRS = list(permutations(ON_GPUS, 2))
SPECS = [
    data
    for file in sorted((REPOSITORY / "specs").glob("*.yaml"))
    if ENGINE_KINDS[(data := load_yaml(file.read_text()))["engine"]["kind"]].on_gpu
]


def document(quantization, kv_cache="none", kind="trt-engine", calibration=CALIBRATION, **engine):
    return {
        **SPEC,
        "quantization": {"format": quantization, "kv_cache": kv_cache, "calibration": calibration},
        "engine": {**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4", **engine},
    }


def migrated(data, to="llmapi"):
    return migrate(ReleaseSpec.model_validate(data), data, to)


def names(lines):
    return [line.partition(":")[0] for line in lines]


OPTIONS = {
    "chat_template": "apply",
    "kv_cache_fraction": 0.8,
    "max_num_tokens": 4096,
    "chunked_prefill": False,
    "kv_cache_host_gib": 4,
    "prefix_caching": True,
    "enforce_eager": True,
    "max_loras": 1,
    "max_lora_rank": 8,
    "guided_decoding_backend": "xgrammar",
}
LORA = [{"name": "a", "repo": "org/a"}]
EVERYTHING = {
    "speculative": [
        {"method": "eagle", "repo": "org/head", "num_tokens": 3},
        {"method": "mtp", "num_tokens": 1},
        {"method": "ngram", "num_tokens": 3},
    ],
    "lora": [LORA],
    "tensor_parallel": [4],
    "pipeline_parallel": [2],
    "attention_dp": [True],
    "expert_parallel": [2, 4],
}
"""Values of fields of the engine, which kinds have or have not."""


def specs_of(kind):
    """Documents that are valid for a kind: every format and cache, each field of the engine alone, and all options."""
    traits = ENGINE_KINDS[kind]
    for format_ in sorted(traits.formats):
        for kv_cache in ("none", "fp8", "int8"):
            for calibration in (CALIBRATION, None):
                yield document(format_, kv_cache, kind, calibration)
    ranks = {"tensor_parallel": 4}
    for name, values in EVERYTHING.items():
        for value in values:
            yield document("fp8", kind=kind, **{**ranks, name: value})
            yield document("fp8", kind=kind, **{**ranks, "lora": LORA, name: value})
    yield document("fp8", kind=kind, options={name: OPTIONS[name] for name in traits.options})
    for metric in sorted(traits.scaling_metrics):
        scaled = {"replicas": {"max": 3}, "autoscale": {"metric": metric, "target": 0.5}}
        yield {**document("fp8", kind=kind), "serving": scaled}
    yield {**document("fp8", kind=kind), "serving": {"image": "registry:5000/triton:26.07"}}
    grouped = {"group": "chat", "gpus": [0, 1]}
    yield {**document("fp8", kind=kind, tensor_parallel=2), "serving": grouped}
    for name, value in EVERY_PARAMETER.items():
        yield document("fp8", kind=kind) | {
            "gate": {**SPEC["gate"], "smoke": [{"prompt": "?", "answer": "!", name: value}]}
        }


def valid(data):
    try:
        return ReleaseSpec.model_validate(data)
    except ValueError:
        return None


@pytest.mark.parametrize(("kind", "to"), PAIRS)
def test_a_migrated_spec_is_valid_or_refused_by_the_name_of_what_the_other_kind_lacks(kind, to):
    migrations, refusals = 0, []
    for data in filter(valid, specs_of(kind)):
        kept = copy.deepcopy(data)
        try:
            after = migrate(ReleaseSpec.model_validate(data), data, to)
        except InputError as error:
            refusals.append(error)
        else:
            assert ReleaseSpec.model_validate(after.document).engine.kind == to
            migrations += 1
        assert data == kept

    assert migrations > 20
    for error in refusals:
        assert error.what.startswith(f"demo cannot be migrated from {kind} to {to}: ")
        assert error.found
        assert error.remedy


def paths(data, prefix=""):
    """Leaves of a document by their paths."""
    for name, value in data.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{path}.")
        elif value is not None:
            yield path, value


@pytest.mark.parametrize(("kind", "to"), PAIRS)
def test_every_field_that_differs_afterwards_is_named(kind, to):
    for data in filter(valid, specs_of(kind)):
        try:
            after = migrate(ReleaseSpec.model_validate(data), data, to)
        except InputError:
            continue
        said = " ".join((*after.changes, *after.without_equivalent))
        differing = {path for path, _ in set(map(repr_of, paths(data))) ^ set(map(repr_of, paths(after.document)))}
        for path in differing:
            section = "quantization.calibration" if path.startswith("quantization.calibration") else path
            section = "engine.speculative" if path.startswith("engine.speculative") else section
            assert section in said, (path, said)


def repr_of(leaf):
    return leaf[0], repr(leaf[1])


@pytest.mark.parametrize(("kind", "to"), PAIRS)
def test_every_shipped_spec_keeps_its_model_its_gate_and_its_limits(kind, to):
    for data in SPECS:
        if data["engine"]["kind"] != kind:
            continue
        after = migrated(data, to).document

        assert {**after, "engine": None, "quantization": None} == {**data, "engine": None, "quantization": None}
        assert {**after["engine"], "kind": kind} == data["engine"]


@pytest.mark.parametrize("quantization", ["int4_awq", "w4a8_awq", "fp8", "nvfp4"])
def test_only_the_kind_changes_where_both_have_the_format(quantization):
    before = document(quantization)

    after = migrated(before).document

    assert after == {**before, "engine": {**before["engine"], "kind": "llmapi"}}


@pytest.mark.parametrize(
    ("data", "to", "words"),
    [
        (document("int8_sq"), "llmapi", "quantization.format int8_sq: rewritten to int4_awq, 0.5 times the size"),
        (document("int4_wo"), "llmapi", "quantization.format int4_wo: rewritten to int4_awq, the same size"),
        (document("int8_wo", calibration=None), "llmapi", "quantization.format int8_wo: rewritten to none, 2 times"),
        (document("int4_wo", calibration=None), "llmapi", "quantization.format int4_wo: rewritten to none, 4 times"),
        (document("int4_awq"), "vllm", "quantization.format int4_awq: rewritten to fp8_online, 2 times the size"),
        (
            document("int8_wo", calibration=None),
            "vllm",
            "quantization.format int8_wo: rewritten to fp8_online, the same",
        ),
        (
            document("fp8_online", kind="vllm", calibration=None),
            "trt-engine",
            "quantization.format fp8_online: rewritten to int8_wo, the same size",
        ),
        (document("int8_sq", "int8"), "llmapi", "quantization.kv_cache int8: rewritten to none"),
        (
            document("none", "fp8"),
            "llmapi",
            "scales of quantization.kv_cache fp8: beside weights that are not quantized",
        ),
        (
            document("none", "fp8", "llmapi", calibration=None),
            "trt-engine",
            "quantization.kv_cache fp8: rewritten to none, which takes twice the memory; trt-engine takes its scales",
        ),
        (
            document("fp8", kind="vllm", options={"enforce_eager": True}),
            "llmapi",
            "engine.options.enforce_eager True: llmapi has no such setting",
        ),
        (
            document("fp8", kind="vllm", speculative={"method": "eagle", "repo": "org/head", "num_tokens": 3}),
            "llmapi",
            "engine.speculative eagle: llmapi has no such method",
        ),
        (
            document("fp8", kind="trt-engine", tensor_parallel=4, pipeline_parallel=2),
            "vllm",
            "several nodes: plan takes the 8 GPUs only if one node has them",
        ),
        (
            document("fp8", kind="llmapi", tensor_parallel=2, attention_dp=True),
            "vllm",
            "engine.attention_dp: vllm divides",
        ),
    ],
)
def test_what_has_no_equivalent_is_named(data, to, words):
    assert any(line.startswith(words) for line in migrated(data, to).without_equivalent)


@pytest.mark.parametrize(
    ("data", "to", "words"),
    [
        (document("none"), "llmapi", "quantization.calibration removed"),
        (
            document("fp8", options={"guided_decoding_backend": "xgrammar"}),
            "vllm",
            "engine.options.guided_decoding_backend removed: vllm does it by itself",
        ),
        (
            document("fp8", options={"kv_cache_fraction": 0.5}),
            "vllm",
            "engine.options.kv_cache_fraction stays, and is now",
        ),
        (
            document("fp8", kind="llmapi", tensor_parallel=4, expert_parallel=2),
            "vllm",
            "engine.expert_parallel: 2 → 4",
        ),
    ],
)
def test_what_has_an_equal_is_rewritten_and_named(data, to, words):
    assert any(line.startswith(words) for line in migrated(data, to).changes)


def test_ranks_over_several_nodes_have_an_equivalent_where_both_span_nodes():
    after = migrated(document("fp8", tensor_parallel=4, pipeline_parallel=2))

    assert "several nodes" not in names(after.without_equivalent)


def test_an_image_with_another_runtime_is_left_out():
    data = {**document("fp8"), "serving": {"image": "registry:5000/triton:26.07-trtllm"}}

    assert "image" in migrated(data, "llmapi").document["serving"]
    assert "image" not in migrated(data, "vllm").document["serving"]


@pytest.mark.parametrize(("kind", "to"), [("vllm", "vllm"), ("llmapi", "openvino"), ("openvino", "vllm")])
def test_the_same_kind_and_kinds_on_cpus_are_refused(kind, to):
    data = SPEC if kind == "openvino" else document("fp8", kind=kind)

    with refused(what=f"cannot be migrated to {to}", found=kind):
        migrated(data, to)


def test_every_format_of_a_kind_on_gpus_has_a_size_and_each_that_a_kind_lacks_a_replacement_or_none():
    formats = {kind: ENGINE_KINDS[kind].formats for kind in ON_GPUS}
    everywhere, anywhere = frozenset.intersection(*formats.values()), frozenset.union(*formats.values())

    assert set(STORED_BITS) == anywhere
    assert set(INSTEAD) == anywhere - everywhere
    assert "none" in everywhere


def test_the_command_has_every_kind_on_gpus():
    assert sorted(Target) == sorted(ON_GPUS)


def test_overrides_of_a_configuration_stay_where_the_runtime_reads_it_and_are_refused_elsewhere():
    overrides = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}
    data = document("none", kind="vllm", calibration=None, overrides=overrides)

    assert migrated(data, "llmapi").document["engine"]["overrides"] == overrides
    with refused(what="it does not read config.json", found="engine.overrides"):
        migrated(data, "trt-engine")
