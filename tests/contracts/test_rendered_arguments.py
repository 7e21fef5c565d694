"""model.yaml, model.json and the parameters of the tensorrt_llm model stay within what their readers are recorded to take."""

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig

from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION
from slipway.tasks.serving.rendered.repository import render
from tests.contracts.recorded import check_document, check_value, contract
from tests.fakes.releases import SPEC, spec
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

TEMPLATES = REPOSITORY / "model_repository_templates"
CACHE = {
    "optimal_adapter_size": 16,
    "max_adapter_size": 16,
    "gpu_memory_fraction": 0.0123,
    "host_memory_bytes": 2**28,
}
LIMITS = {"max_batch_size": 8, "max_input_tokens": 64, "max_sequence_tokens": 128}


def repository(kind, tmp_path, *, quantization=None, serving=None, adapters=None, **engine):
    """As assemble renders it, from what build writes down; `adapters` are ranks by name."""
    settings = {**SPEC["engine"], **LIMITS, "kind": kind, "gpu": "NVIDIA-L4", **engine}
    asked = spec(engine=settings, quantization=quantization or {"format": "none"}, serving=serving or {})
    description = {
        "limits": LIMITS,
        "chat_template": "apply",
        "kv_cache_fraction": 0.9,
        "paged_attention": True,
        "versions": {},
        "adapters": adapters or {},
        **({"adapter_modules": ["attn_q", "attn_k", "attn_v"], "adapter_cache": CACHE} if adapters else {}),
        **({"adapter_dtype": "bfloat16"} if adapters else {}),
    }
    (tmp_path / ENGINE_DESCRIPTION).write_text(json.dumps(description))
    out = tmp_path / "repository"
    out.mkdir()
    render(TEMPLATES, kind, maker_for(kind).template_values(tmp_path, asked), out)
    return out


@pytest.mark.parametrize("quantization", [{"format": "none"}, {"format": "fp8", "kv_cache": "fp8"}])
def test_the_arguments_of_the_llm_api_are_fields_that_it_has(tmp_path, quantization):
    folder = repository("llmapi", tmp_path, quantization=quantization, tensor_parallel=2)
    arguments = load_yaml((folder / "demo" / "1" / "model.yaml").read_text())

    check_document(arguments, contract("llm_arguments.yaml"))
    assert arguments["kv_cache_config"]["dtype"] == ("fp8" if "kv_cache" in quantization else "auto")
    assert arguments["tensor_parallel_size"] == 2


@pytest.mark.parametrize("shared", [True, False])
def test_sharing_the_cache_of_prompts_is_a_field_of_the_llm_api(tmp_path, shared):
    folder = repository("llmapi", tmp_path, options={"prefix_caching": shared})
    arguments = load_yaml((folder / "demo" / "1" / "model.yaml").read_text())

    check_document(arguments, contract("llm_arguments.yaml"))
    assert arguments["kv_cache_config"]["enable_block_reuse"] is shared


def test_a_cache_in_fp8_beside_unquantized_weights_is_a_field_of_both_runtimes(tmp_path):
    for kind, file in (("llmapi", "model.yaml"), ("vllm", "model.json")):
        (tmp_path / kind).mkdir()
        folder = repository(kind, tmp_path / kind, quantization={"format": "none", "kv_cache": "fp8"})
        arguments = load_yaml((folder / "demo" / "1" / file).read_text())

        cache = arguments["kv_cache_config"]["dtype"] if kind == "llmapi" else arguments["kv_cache_dtype"]
        assert cache == "fp8"
        assert "quantization" not in arguments


def test_weights_that_vllm_quantizes_as_it_loads_them_are_a_field_of_vllm(tmp_path):
    folder = repository("vllm", tmp_path, quantization={"format": "fp8_online"})
    arguments = json.loads((folder / "demo" / "1" / "model.json").read_text())

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert arguments["quantization"] == "fp8"


def test_the_places_of_experts_and_attention_are_fields_of_the_llm_api(tmp_path):
    folder = repository("llmapi", tmp_path, tensor_parallel=4, expert_parallel=2, attention_dp=True)
    arguments = load_yaml((folder / "demo" / "1" / "model.yaml").read_text())

    check_document(arguments, contract("llm_arguments.yaml"))
    assert (arguments["moe_expert_parallel_size"], arguments["moe_tensor_parallel_size"]) == (2, 2)
    assert arguments["enable_attention_dp"] is True


def test_sharing_out_experts_is_a_field_of_vllm(tmp_path):
    folder = repository("vllm", tmp_path, tensor_parallel=4, expert_parallel=4)
    arguments = json.loads((folder / "demo" / "1" / "model.json").read_text())

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert arguments["enable_expert_parallel"] is True


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_a_model_without_experts_is_rendered_without_their_fields(tmp_path, kind):
    folder = repository(kind, tmp_path, tensor_parallel=4) / "demo" / "1"
    rendered = "".join(file.read_text() for file in folder.glob("model.[jy]*"))

    assert "moe_" not in rendered
    assert "expert" not in rendered
    assert "attention_dp" not in rendered


DRAFTED = {"repo": "org/draft", "num_tokens": 3}


@pytest.mark.parametrize(
    ("method", "more", "decoding_type"),
    [
        ("eagle3", DRAFTED, "Eagle"),
        ("draft_model", DRAFTED, "DraftTarget"),
        ("mtp", {"num_tokens": 3}, "MTP"),
        ("ngram", {"num_tokens": 3, "lookup_tokens": 5}, "NGram"),
    ],
)
def test_ways_to_guess_tokens_are_fields_of_the_llm_api(tmp_path, method, more, decoding_type):
    folder = repository("llmapi", tmp_path, speculative={"method": method, **more})
    arguments = load_yaml((folder / "demo" / "1" / "model.yaml").read_text())
    stated = arguments["speculative_config"]

    check_document(arguments, contract("llm_arguments.yaml"))
    assert stated["decoding_type"] == decoding_type
    assert 3 in (stated.get("max_draft_len"), stated.get("num_nextn_predict_layers"))
    assert stated.get("speculative_model_dir") == ("draft" if "repo" in more else None)
    assert stated.get("max_matching_ngram_size") == more.get("lookup_tokens")
    assert arguments.get("disable_overlap_scheduler", False) is (method in ("draft_model", "ngram"))


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("eagle", DRAFTED),
        ("eagle3", DRAFTED),
        ("draft_model", DRAFTED),
        ("mtp", {"num_tokens": 3}),
        ("ngram", {"num_tokens": 3, "lookup_tokens": 5}),
    ],
)
def test_ways_to_guess_tokens_are_fields_of_vllm(tmp_path, method, more):
    folder = repository("vllm", tmp_path, speculative={"method": method, **more})
    arguments = json.loads((folder / "demo" / "1" / "model.json").read_text())
    stated = arguments["speculative_config"]

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert (stated["method"], stated["num_speculative_tokens"]) == (method, 3)
    assert stated.get("model") == ("draft" if "repo" in more else None)
    assert stated.get("prompt_lookup_max") == more.get("lookup_tokens")


@pytest.mark.parametrize("kind", ["llmapi", "vllm"])
def test_an_engine_that_guesses_no_tokens_says_nothing_of_it(tmp_path, kind):
    folder = repository(kind, tmp_path) / "demo" / "1"

    assert "specul" not in "".join(file.read_text() for file in folder.glob("model.[jy]*"))


GIB = 2**30


@pytest.mark.parametrize("chunked", [True, False])
def test_prompts_in_several_steps_and_the_hosts_memory_are_fields_of_the_llm_api(tmp_path, chunked):
    options = {"chunked_prefill": chunked, "kv_cache_host_gib": 1.5}
    folder = repository("llmapi", tmp_path, options=options, tensor_parallel=2)
    arguments = load_yaml((folder / "demo" / "1" / "model.yaml").read_text())

    check_document(arguments, contract("llm_arguments.yaml"))
    assert arguments["enable_chunked_prefill"] is chunked
    assert arguments["kv_cache_config"]["host_cache_size"] == 1.5 * GIB


def test_the_hosts_memory_of_all_ranks_together_is_a_field_of_vllm(tmp_path):
    options = {"chunked_prefill": True, "kv_cache_host_gib": 3}
    folder = repository("vllm", tmp_path, options=options, tensor_parallel=2, pipeline_parallel=2)
    arguments = json.loads((folder / "demo" / "1" / "model.json").read_text())

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert arguments["enable_chunked_prefill"] is True
    assert arguments["kv_offloading_size"] == 12


@pytest.mark.parametrize(("options", "chunked"), [({}, "true"), ({"chunked_prefill": False}, "false")])
def test_prompts_in_several_steps_are_a_parameter_of_the_tensorrt_llm_model(tmp_path, options, chunked):
    assert tensorrt_llm_parameters(tmp_path, options=options)["enable_chunked_context"] == chunked


@pytest.mark.parametrize(("options", "memory"), [({}, None), ({"kv_cache_host_gib": 2}, str(2 * GIB))])
def test_the_hosts_memory_is_a_parameter_of_the_tensorrt_llm_model(tmp_path, options, memory):
    assert tensorrt_llm_parameters(tmp_path, options=options).get("kv_cache_host_memory_bytes") == memory


@pytest.mark.parametrize("options", [{}, {"enforce_eager": True, "prefix_caching": False, "max_num_tokens": 512}])
def test_the_arguments_of_vllm_are_fields_that_it_has(tmp_path, options):
    folder = repository("vllm", tmp_path, options=options)
    arguments = json.loads((folder / "demo" / "1" / "model.json").read_text())

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert arguments["max_model_len"] == LIMITS["max_sequence_tokens"]
    assert arguments["enable_prefix_caching"] is not options.get("enforce_eager", False)


def test_adapters_are_fields_of_vllm(tmp_path):
    lora = [{"name": "polite", "repo": "org/polite"}]
    folder = repository("vllm", tmp_path, adapters={"polite": 12}, lora=lora) / "demo"
    arguments = json.loads((folder / "1" / "model.json").read_text())
    config = text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())

    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert (arguments["enable_lora"], arguments["max_lora_rank"]) == (True, 16)
    assert json.loads(config.parameters["adapters"].string_value) == {"polite": "lora/polite"}


def test_adapters_are_fields_of_the_llm_api(tmp_path):
    lora = [{"name": "polite", "repo": "org/polite"}, {"name": "terse", "repo": "org/terse"}]
    folder = repository("llmapi", tmp_path, adapters={"polite": 8, "terse": 16}, lora=lora) / "demo"
    arguments = load_yaml((folder / "1" / "model.yaml").read_text())
    config = text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())

    check_document(arguments, contract("llm_arguments.yaml"))
    assert arguments["lora_config"]["max_lora_rank"] == 16
    assert {tensor.name: tensor.optional for tensor in config.input}["lora_name"]
    assert json.loads(config.parameters["adapters"].string_value) == {"polite": "lora/polite", "terse": "lora/terse"}


def test_adapters_are_parameters_of_the_tensorrt_llm_model_and_weights_have_the_models_type(tmp_path):
    recorded = contract("template_parameters.yaml")["models"]["tensorrt_llm"]
    lora = [{"name": "polite", "repo": "org/polite"}]
    folder = repository("trt-engine", tmp_path, adapters={"polite": 16}, lora=lora)
    backend = text_format.Parse((folder / "demo_tensorrt_llm" / "config.pbtxt").read_text(), ModelConfig())
    front = text_format.Parse((folder / "demo" / "config.pbtxt").read_text(), ModelConfig())
    given = {name: value.string_value for name, value in backend.parameters.items() if name.startswith("lora_")}

    assert given.keys() == {f"lora_cache_{name}" for name in CACHE}
    for name, value in given.items():
        check_value(name, value, recorded["optional"][name])
    types = {tensor.name: DataType.Name(tensor.data_type) for tensor in backend.input}
    assert (types["lora_weights"], types["lora_config"]) == ("TYPE_BF16", "TYPE_INT32")
    assert {tensor.name: tensor.optional for tensor in front.input}["lora_name"]
    assert json.loads(front.parameters["adapters"].string_value) == {"polite": "lora/polite"}


@pytest.mark.parametrize("options", [{}, {"chunked_prefill": True, "kv_cache_host_gib": 2}])
def test_the_parameters_of_the_tensorrt_llm_model_are_among_those_of_its_own_template(tmp_path, options):
    assert tensorrt_llm_parameters(tmp_path, options=options)


def tensorrt_llm_parameters(tmp_path, **engine):
    """The model's parameters by name, once all of them are known to be recorded."""
    recorded = contract("template_parameters.yaml")["models"]["tensorrt_llm"]
    text = (repository("trt-engine", tmp_path, **engine) / "demo_tensorrt_llm" / "config.pbtxt").read_text()
    config = text_format.Parse(text, ModelConfig())
    known = {**recorded["required"], **recorded["optional"]}
    for template_name, written in recorded["named_otherwise"].items():
        known[written] = known.pop(template_name)

    for name, value in config.parameters.items():
        assert name in {*known, *recorded["fixed"]}, f"{name} is no parameter of the template"
        if name in known and value.string_value:
            check_value(name, value.string_value, known[name])
    return {name: value.string_value for name, value in config.parameters.items()}
