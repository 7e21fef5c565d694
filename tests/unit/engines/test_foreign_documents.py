"""Whatever a stranger wrote into a checkpoint's documents, plan and steps refuse it in words or take it."""

import contextlib
import json

import pytest

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError, PipelineError
from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.checkpoint.files import check_weights, read_config
from slipway.tasks.engines.checkpoint.foreign import EXPECTED, check_document, refusing
from slipway.tasks.engines.checkpoint.positions import check_limits
from slipway.tasks.engines.registry import planner_for
from tests.fakes.documents.eks_site import eks
from tests.fakes.releases import SPEC
from tests.support.refused import refused

SITE = read_contract(Site, eks(), "eks.yaml")
ODD = [0, -1, 7, 2**70, 1.5, float("inf"), True, "", "x", "x" * 100_000, [], [None], [[]], ["a", 1], {}, {"a": None}]
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 131072,
}
NAMES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "hf_quant_config.json")
SOURCE = Source(
    repo="acme/m",
    revision="v1",
    commit="c" * 40,
    files=tuple(HubFile(path=name, digest=f"sha256:{'0' * 64}", size_bytes=1000) for name in NAMES),
)


def planned(kind, documents):
    """What plan does with the documents of a source."""
    for name, document in documents.items():
        check_document(name, document)
    gpu = {} if kind == "openvino" else {"gpu": "NVIDIA-L4"}
    engine = {**SPEC["engine"], "kind": kind, **gpu}
    document = {**SPEC, "engine": engine, "quantization": {"format": "none"}}
    spec = read_contract(ReleaseSpec, document, "spec")
    planner = planner_for(kind)
    planner.check(resolve(spec, SITE), SOURCE, documents)
    planner.estimate(spec, SOURCE)


@pytest.mark.parametrize("kind", ["openvino", "trt-engine", "llmapi", "vllm"])
@pytest.mark.parametrize("field", [*EXPECTED, "rope_theta", "sliding_window", "num_local_experts"])
def test_no_odd_value_of_a_field_ends_in_an_error_that_is_not_ours(kind, field):
    for value in ODD:
        for documents in (
            {"config.json": {**CONFIG, field: value}},
            {"config.json": {"text_config": {**CONFIG, field: value}}},
            {"config.json": CONFIG, "tokenizer_config.json": {field: value}},
            {"config.json": CONFIG, "hf_quant_config.json": {"quantization": {field: value}}},
        ):
            with contextlib.suppress(PipelineError):
                planned(kind, documents)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("architectures", "LlamaForCausalLM"),
        ("architectures", [7]),
        ("hidden_size", "64"),
        ("max_position_embeddings", "many"),
        ("max_position_embeddings", 10**10),
        ("vocab_size", True),
        ("quantization_config", "fp8"),
        ("torch_dtype", 16),
    ],
)
def test_a_field_of_another_type_is_named_with_what_was_expected(tmp_path, field, value):
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, field: value}))

    with refused(what=f"config.json: {field}", found=repr(value), expected=EXPECTED[field]):
        read_config(tmp_path)


def test_a_long_value_is_cut():
    with pytest.raises(InputError) as refused:
        check_document("config.json", {"hidden_size": "9" * 100_000})

    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("index", ["null", "[]", "7", '{"weight_map": null}', '{"weight_map": [1]}', "[" * 100_000])
def test_an_odd_index_of_shards_is_refused_or_taken_as_none(tmp_path, index):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    (tmp_path / "model.safetensors.index.json").write_text(index)

    with pytest.raises(InputError):
        check_weights(tmp_path)


@pytest.mark.parametrize("method", ["gptq", "awq", "compressed-tensors", "fp8"])
def test_openvino_refuses_a_checkpoint_that_is_quantized_already_at_plan(method):
    documents = {"config.json": {**CONFIG, "quantization_config": {"quant_method": method}}}

    with refused(what="already quantized", found=method, remedy="Choose the unquantized model"):
        planned("openvino", documents)


def test_positions_are_compared_as_numbers():
    spec = read_contract(ReleaseSpec, SPEC, "spec")

    with refused(what="engine.max_sequence_tokens", expected="at most 8"):
        check_limits(spec, {**CONFIG, "max_position_embeddings": 8})


@pytest.mark.parametrize("raised", [AttributeError("x"), NameError("gptqmodel"), SyntaxError("x"), ZeroDivisionError()])
def test_whatever_a_toolkit_raises_over_foreign_files_is_wrong_input(raised):
    with (
        refused(
            what="the toolkit cannot load it", found=str(raised) or type(raised).__name__, remedy="Choose another."
        ),
        refusing("the toolkit cannot load it", "Choose another."),
    ):
        raise raised


def test_a_machine_out_of_memory_is_not_the_files_fault():
    with pytest.raises(MemoryError), refusing("the toolkit cannot load it", "Choose another."):
        raise MemoryError


def test_a_panic_of_rust_code_is_wrong_input():
    class PanicException(BaseException):
        """As pyo3 names it."""

    with (
        refused(what="the toolkit cannot load it", found="index out of bounds"),
        refusing("the toolkit cannot load it", "Choose another."),
    ):
        raise PanicException("index out of bounds")


def test_being_told_to_end_is_not_taken_for_a_refusal():
    with pytest.raises(KeyboardInterrupt), refusing("the toolkit cannot load it", "Choose another."):
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["openvino", "trt-engine", "llmapi", "vllm"])
def test_documents_as_they_should_be_are_taken(kind):
    planned(kind, {"config.json": CONFIG})
