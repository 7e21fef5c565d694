"""Repositories of the GPU engines: rendered from the specs that ship, and held against what their backends take."""

import json

import pytest
from google.protobuf import text_format
from google.protobuf.json_format import MessageToDict
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.registry import maker_for
from slipway.tasks.engines.trtllm.vocabulary import VOCABULARY
from slipway.tasks.serving.rendered.repository import render, template_files
from tests.support.goldens import check_goldens
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

TEMPLATES = REPOSITORY / "model_repository_templates"
CONTRACT = json.loads((REPOSITORY / "tests" / "contracts" / "triton_tensorrt_llm_model.json").read_text())
VALUES = {
    "name": "demo",
    "engine_folder": "engine",
    "repository_root": "/models/repository",
    "chat_template": "apply",
    "max_batch_size": 8,
    "max_input_tokens": 64,
    "max_sequence_tokens": 128,
    "gpus": [0],
    "kv_cache_fraction": 0.9,
    "paged_context": True,
    "chunked_prefill": True,
    "host_cache_bytes": 0,
    "kv_cache": "auto",
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "prefix_caching": True,
    "loras": {},
    "lora_cache": {},
    "lora_type": "TYPE_FP16",
    "speculation": {},
    "options": {},
    "guided_decoding_backend": "",
}
USED = {
    "trt-engine": VALUES.keys()
    - {"kv_cache", "tensor_parallel", "pipeline_parallel", "prefix_caching", "speculation", "options"},
    "llmapi": VALUES.keys()
    - {
        *("repository_root", "paged_context", "chunked_prefill", "lora_cache", "lora_type", "speculation"),
        "guided_decoding_backend",
    },
    "vllm": VALUES.keys()
    - {
        "repository_root",
        "paged_context",
        "chunked_prefill",
        "host_cache_bytes",
        "prefix_caching",
        "lora_cache",
        "lora_type",
        "guided_decoding_backend",
    },
}
CASES = {
    "llama-3-8b-awq-l4": ["llama-3-8b-awq-l4"],
    "llama-3-70b-fp8-h100x4": ["llama-3-70b-fp8-h100x4"],
    "llama-3-8b-tp4pp2-a10g": ["llama-3-8b-tp4pp2-a10g"],
    "mistral-7b-vllm-a10g": ["mistral-7b-vllm-a10g"],
    "qwen-llmapi-fp8": ["qwen-llmapi-fp8"],
    "group-chat-models": ["llama-2-7b", "mistral-7b"],
}
FIVE = ["demo", "demo_ensemble", "demo_postprocessing", "demo_preprocessing", "demo_tensorrt_llm"]


def rendered(kind, out, **changed):
    out.mkdir(exist_ok=True)
    render(TEMPLATES, kind, {**VALUES, **changed}, out)
    return out


def config(repository, model):
    return text_format.Parse((repository / model / "config.pbtxt").read_text(), ModelConfig())


def parameters(repository, model):
    return {key: value.string_value for key, value in config(repository, model).parameters.items()}


def from_spec(name, out, scratch):
    """Render as assemble does, from what build would have read back of an engine that is as asked."""
    spec = ReleaseSpec.model_validate(load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text()))
    limits = {key: getattr(spec.engine, key) for key in ("max_batch_size", "max_input_tokens", "max_sequence_tokens")}
    description = {
        "limits": limits,
        "chat_template": spec.engine.options.get("chat_template", "apply"),
        "kv_cache_fraction": 0.9,
        "paged_attention": True,
        "versions": {},
    }
    (scratch / "engine.json").write_text(json.dumps(description))
    render(TEMPLATES, spec.engine.kind, maker_for(spec.engine.kind).template_values(scratch, spec), out)


@pytest.mark.parametrize("case", CASES)
def test_a_spec_that_ships_makes_the_repository_that_was_looked_through(case, tmp_path):
    out, scratch = tmp_path / "repository", tmp_path / "engine"
    out.mkdir()
    scratch.mkdir()
    for name in CASES[case]:
        from_spec(name, out, scratch)

    files = {path.relative_to(out).as_posix(): path for path in template_files(out)}
    texts = {name: path.read_text() for name, path in files.items() if path.suffix != ".py"}
    check_goldens(f"repositories/{case}", {**texts, "files.txt": "".join(f"{name}\n" for name in files)})
    assert {config(out, folder.name).name for folder in out.iterdir()} == {folder.name for folder in out.iterdir()}


@pytest.mark.parametrize(("kind", "missing"), [(kind, name) for kind, names in USED.items() for name in sorted(names)])
def test_a_value_that_is_not_given_is_an_error(tmp_path, kind, missing):
    values = {name: value for name, value in VALUES.items() if name in USED[kind] and name != missing}

    with pytest.raises((InputError, KeyError), match=missing):
        render(TEMPLATES, kind, values, tmp_path)


@pytest.mark.parametrize("kind", USED)
def test_two_releases_live_in_one_repository_and_a_name_is_taken_once(tmp_path, kind):
    one = set(render(TEMPLATES, kind, VALUES, tmp_path))
    both = render(TEMPLATES, kind, {**VALUES, "name": "other"}, tmp_path)

    assert set(both) == one | {model.replace("demo", "other") for model in one}
    with pytest.raises(InputError) as caught:
        render(TEMPLATES, kind, VALUES, tmp_path)
    assert caught.value.expected == "every model once"


def test_the_five_models_and_the_shared_code_of_those_that_need_it(tmp_path):
    assert render(TEMPLATES, "trt-engine", VALUES, tmp_path) == FIVE
    with_code = {path.parts[-4] for path in tmp_path.glob("*/1/generation/service.py")}

    assert with_code == {"demo", "demo_preprocessing", "demo_postprocessing"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_the_tensorrt_llm_model_takes_and_gives_what_the_backend_does(tmp_path):
    found = MessageToDict(
        config(rendered("trt-engine", tmp_path), "demo_tensorrt_llm"), preserving_proto_field_name=True
    )

    assert found["backend"] == "tensorrtllm"
    for direction in ("input", "output"):
        assert [as_contract(tensor) for tensor in found[direction]] == CONTRACT[direction]


def as_contract(tensor):
    dims = [int(size) for size in tensor["dims"]]
    flags = {"scalar": "reshape" in tensor, "optional": "optional" in tensor, "ragged": "allow_ragged_batch" in tensor}
    return {
        "name": tensor["name"],
        "data_type": tensor["data_type"],
        "dims": dims,
        **{k: v for k, v in flags.items() if v},
    }


def test_the_tensorrt_llm_model_has_parameters_of_the_backend_and_those_it_cannot_do_without(tmp_path):
    found = parameters(rendered("trt-engine", tmp_path), "demo_tensorrt_llm")

    assert found.keys() <= set(CONTRACT["parameters"])
    assert found.keys() >= set(CONTRACT["always_read"])
    assert found["gpt_model_path"] == found["tokenizer_dir"] == "/models/repository/demo/1/engine"
    assert found["gpt_model_type"] == "inflight_fused_batching"


@pytest.mark.parametrize("model", ["demo_preprocessing", "demo_postprocessing"])
def test_tokenizers_are_where_the_engine_is(tmp_path, model):
    assert parameters(rendered("trt-engine", tmp_path), model)["engine_folder"] == "/models/repository/demo/1/engine"


def test_what_preprocessing_gives_the_backend_takes_by_the_same_names_and_types(tmp_path):
    repository = rendered("trt-engine", tmp_path)
    backend = {tensor.name: tensor for tensor in config(repository, "demo_tensorrt_llm").input}

    for tensor in config(repository, "demo_preprocessing").output:
        if tensor.name in {"tool_call_format", "thought_marks"}:  # for the model that asks
            continue
        taken = backend[tensor.name]
        assert (tensor.data_type, list(tensor.dims)) == (taken.data_type, [1, *taken.dims])


@pytest.mark.parametrize(("paged", "word"), [(True, "true"), (False, "false")])
def test_cache_reuse_and_chunks_need_paged_context_attention(tmp_path, paged, word):
    found = parameters(rendered("trt-engine", tmp_path, paged_context=paged), "demo_tensorrt_llm")

    assert found["enable_kv_cache_reuse"] == found["enable_chunked_context"] == word


@pytest.mark.parametrize(("kind", "model"), [("trt-engine", "demo_tensorrt_llm"), ("llmapi", "demo"), ("vllm", "demo")])
def test_gpus_are_named_where_they_were_chosen(tmp_path, kind, model):
    pinned = rendered(kind, tmp_path / "pinned", gpus=[2, 3])
    free = rendered(kind, tmp_path / "free", gpus=[])

    assert parameters(pinned, model)["gpu_device_ids"] == "2,3"
    assert "gpu_device_ids" not in parameters(free, model)


def test_vllms_engine_arguments_come_from_the_values_and_options_may_add_some(tmp_path):
    found = json.loads((rendered("vllm", tmp_path, options={"enforce_eager": True}) / "demo/1/model.json").read_text())

    assert found == {
        "tensor_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "max_num_seqs": 8,
        "max_model_len": 128,
        "gpu_memory_utilization": 0.9,
        "kv_cache_dtype": "auto",
        "disable_log_stats": False,
        "enforce_eager": True,
    }


def test_adapters_are_listed_where_they_lie_below_the_engine(tmp_path):
    loras = {"terse": "lora/terse", "polite": "lora/polite"}
    without = rendered("vllm", tmp_path / "without")
    adapted = rendered("vllm", tmp_path / "adapted", loras=loras)

    assert "adapters" not in parameters(without, "demo")
    assert json.loads(parameters(adapted, "demo")["adapters"]) == loras


def test_the_llm_apis_arguments_come_from_the_values_and_options_may_add_some(tmp_path):
    repository = rendered(
        "llmapi",
        tmp_path,
        tensor_parallel=2,
        kv_cache="fp8",
        prefix_caching=False,
        options={"max_num_tokens": 4096},
    )

    assert load_yaml((repository / "demo/1/model.yaml").read_text()) == {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 1,
        "max_batch_size": 8,
        "max_input_len": 64,
        "max_seq_len": 128,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.9, "dtype": "fp8", "enable_block_reuse": False},
        "max_num_tokens": 4096,
    }


NOT_OF_THE_LLM_API = {"seed", "min_p", "ignore_eos", "presence_penalty", "frequency_penalty", "repetition_penalty"}


def test_the_llm_apis_model_takes_and_gives_what_openvinos_does_but_for_some_parameters(tmp_path):
    openvino = {"scheduler": {}, "properties": {}}
    ours = config(rendered("llmapi", tmp_path / "llmapi"), "demo")
    theirs = config(rendered("openvino", tmp_path / "openvino", **openvino), "demo")
    both = [tensor for tensor in theirs.input if tensor.name not in {*NOT_OF_THE_LLM_API, "json_schema"}]

    assert [tensor for tensor in ours.input if tensor.name != "top_logprobs"] == both
    assert list(ours.output) == list(theirs.output)
    assert ours.model_transaction_policy.decoupled


def test_the_llm_apis_model_takes_a_schema_where_guided_decoding_is_enabled(tmp_path):
    guided = config(rendered("llmapi", tmp_path, options={"guided_decoding_backend": "xgrammar"}), "demo")

    assert "json_schema" in {tensor.name for tensor in guided.input}


def test_an_engines_models_take_a_schema_where_its_vocabulary_is_described(tmp_path):
    plain = rendered("trt-engine", tmp_path / "plain")
    guided = rendered("trt-engine", tmp_path / "guided", guided_decoding_backend="xgrammar")
    models = ("demo", "demo_preprocessing")

    assert all("json_schema" in {tensor.name for tensor in config(guided, model).input} for model in models)
    assert not any("json_schema" in {tensor.name for tensor in config(plain, model).input} for model in models)
    names = ("guided_decoding_backend", "xgrammar_tokenizer_info_path")
    found = {way: [parameters(way, "demo_tensorrt_llm")[name] for name in names] for way in (plain, guided)}
    assert found == {plain: ["", ""], guided: ["xgrammar", f"/models/repository/demo/1/engine/{VOCABULARY}"]}
    given = {tensor.name: tensor for tensor in config(guided, "demo_preprocessing").output}
    taken = {tensor["name"]: tensor for tensor in CONTRACT["input"]}
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        assert [*given[name].dims] == [1, *taken[name]["dims"]]


def test_no_mark_of_a_template_is_left_in_any_file(tmp_path):
    for kind in USED:
        for path in template_files(rendered(kind, tmp_path / kind)):
            assert path.suffix == ".py" or not any(mark in path.read_text() for mark in ("${", "{{", "{%"))
