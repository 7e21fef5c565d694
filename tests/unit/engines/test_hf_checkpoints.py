"""Engines of llmapi and vllm are checkpoints: passed on as they are, or compared with what ModelOpt says it made."""

import json

import pytest
from safetensors.numpy import save_file

from slipway.tasks.contracts.engine.lora_support import VLLM_ADAPTERS
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.checkpoint.config_reading import differences
from slipway.tasks.engines.preflight.loras import max_rank
from slipway.tasks.engines.registry import maker_for
from tests.fakes.releases import SPEC, spec
from tests.fixtures.adapters import SIZES, TINY, write_adapter
from tests.fixtures.odd_checkpoints import FORMS, config_of
from tests.support.refused import refused

KINDS = ("llmapi", "vllm")


def asked(kind, quantization="none", kv_cache="none", **engine):
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache},
        engine={**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-L4", **engine},
    )


@pytest.fixture
def checkpoint(tmp_path):
    import numpy as np

    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file({"weight": np.zeros((2, 2), dtype=np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def made_by_modelopt(checkpoint, quant_algo, kv_cache=None):
    said = {"quantization": {"quant_algo": quant_algo, "kv_cache_quant_algo": kv_cache}}
    (checkpoint / "hf_quant_config.json").write_text(json.dumps(said))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_that_keeps_its_format_passes_through(kind, checkpoint, out):
    metrics = maker_for(kind).quantize(checkpoint, asked(kind), out, Texts())

    assert {file.name: file.read_bytes() for file in out.iterdir()} == {
        file.name: file.read_bytes() for file in checkpoint.iterdir()
    }
    assert metrics["weights_bytes"] == metrics["source_bytes"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_served_as_it_is_has_its_positions_in_the_form_that_every_runtime_reads(kind, form, checkpoint, out):
    (checkpoint / "config.json").write_text(json.dumps(config_of("llama", form)))
    before = (checkpoint / "config.json").read_bytes()

    maker_for(kind).build(checkpoint, asked(kind), out)

    served = json.loads((out / "config.json").read_text())
    assert differences(config_of("llama"), served, 4) == []
    assert (checkpoint / "config.json").read_bytes() == before
    assert ((out / "config.json").read_bytes() == before) == (form != "newer")


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_is_the_checkpoint_and_what_it_says(kind, checkpoint, out):
    made_by_modelopt(checkpoint, "FP8", "FP8")

    description = maker_for(kind).build(checkpoint, asked(kind, "fp8", "fp8"), out)

    assert description["quantization"] == {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    assert (out / "model.safetensors").stat().st_ino == (checkpoint / "model.safetensors").stat().st_ino
    assert json.loads((out / "engine.json").read_text()) == description


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("made", "name", "expected"),
    [
        (("NVFP4", None), "quantization.quant_algo", "'FP8'"),
        (("FP8", "FP8"), "quantization.kv_cache_quant_algo", "None"),
    ],
)
def test_a_checkpoint_in_another_format_than_the_asked_one_is_refused(kind, checkpoint, out, made, name, expected):
    made_by_modelopt(checkpoint, *made)

    with refused(what=name, expected=expected):
        maker_for(kind).build(checkpoint, asked(kind, "fp8"), out)


@pytest.mark.parametrize("kind", KINDS)
def test_templates_get_limits_ranks_and_the_chosen_gpus(kind, checkpoint, out):
    settings = asked(kind)
    maker_for(kind).build(checkpoint, settings, out)

    values = maker_for(kind).template_values(out, settings)

    assert (values["max_batch_size"], values["tensor_parallel"], values["gpus"]) == (8, 1, [])
    assert values["kv_cache"] == "auto"
    assert values["chat_template"] == "none"


def test_options_reach_vllm(checkpoint, out):
    settings = asked("vllm", options={"enforce_eager": True, "kv_cache_fraction": 0.5})
    maker_for("vllm").build(checkpoint, settings, out)

    values = maker_for("vllm").template_values(out, settings)

    assert values["options"]["enforce_eager"] is True
    assert values["kv_cache_fraction"] == 0.5


@pytest.mark.parametrize(("asked_for", "reused"), [({}, True), ({"prefix_caching": False}, False)])
def test_prompts_that_begin_alike_share_their_cache_unless_told_otherwise(checkpoint, out, asked_for, reused):
    settings = asked("llmapi", options=asked_for)
    maker_for("llmapi").build(checkpoint, settings, out)

    assert maker_for("llmapi").template_values(out, settings)["prefix_caching"] is reused


HALF = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 8}
HALF |= {"layer_types": ["linear_attention", "full_attention"]}


@pytest.mark.parametrize(
    ("fields", "asked_for", "stated"),
    [
        ({}, {}, {"enable_prefix_caching": True}),
        ({}, {"prefix_caching": False}, {"enable_prefix_caching": False}),
        (HALF, {}, {}),
        (HALF, {"prefix_caching": True}, {"enable_prefix_caching": True}),
    ],
)
def test_prefix_caching_of_a_hybrid_is_left_to_vllm_unless_the_spec_says(checkpoint, out, fields, asked_for, stated):
    architecture = "Qwen3NextForCausalLM" if fields else "LlamaForCausalLM"
    (checkpoint / "config.json").write_text(json.dumps({"architectures": [architecture], **fields}))
    settings = asked("vllm", options=asked_for)
    maker_for("vllm").build(checkpoint, settings, out)

    options = maker_for("vllm").template_values(out, settings)["options"]

    assert {name: value for name, value in options.items() if "prefix" in name} == stated


ADAPTERS = [{"name": name, "repo": f"org/{name}"} for name in ("terse", "polite")]


WEIGHTS = "model.safetensors"


@pytest.fixture
def adapted(checkpoint):
    """The checkpoint with two adapters beside it, of ranks 40 and 8, which change layers that it has."""
    import numpy as np

    own = [f"model.layers.{number}.self_attn.{layer}.weight" for number in (0, 1) for layer in ("q_proj", "v_proj")]
    shapes = {name: SIZES[name.split(".")[-2]] for name in own}
    save_file({name: np.zeros(shape[::-1], np.float16) for name, shape in shapes.items()}, checkpoint / WEIGHTS)
    for name, rank in (("terse", 40), ("polite", 8)):
        write_adapter(checkpoint / "lora" / name, rank)
    return checkpoint


def passed_on(checkpoint, out):
    """Adapters' files in `out` and whether each has the bytes of the checkpoint's."""
    return {
        path.relative_to(out).as_posix(): path.read_bytes() == (checkpoint / path.relative_to(out)).read_bytes()
        for path in (out / "lora").rglob("*")
        if path.is_file()
    }


FOUR = {
    f"lora/{name}/{file}": True
    for name in ("polite", "terse")
    for file in ("adapter_config.json", "adapter_model.safetensors")
}


def test_adapters_pass_through_quantize_and_are_no_weights_of_the_model(adapted, out):
    metrics = maker_for("vllm").quantize(adapted, asked("vllm", lora=ADAPTERS), out, Texts())

    assert passed_on(adapted, out) == FOUR
    assert metrics["weights_bytes"] == (adapted / "model.safetensors").stat().st_size


def test_a_library_that_an_adapter_names_does_not_reach_the_server(adapted, out):
    config = adapted / "lora" / "terse" / "adapter_config.json"
    named = {"auto_mapping": {"base_model_class": "C", "parent_library": "stranger.kernel"}}
    config.write_text(json.dumps(json.loads(config.read_text()) | named))

    maker_for("vllm").build(adapted, asked("vllm", lora=ADAPTERS), out)

    assert passed_on(adapted, out) == FOUR | {"lora/terse/adapter_config.json": False}
    served = json.loads((out / "lora" / "terse" / "adapter_config.json").read_text())
    assert served == {name: value for name, value in json.loads(config.read_text()).items() if name not in named}


def test_the_server_gets_adapters_room_for_the_highest_rank_and_for_all_at_once(adapted, out):
    settings = asked("vllm", lora=ADAPTERS)

    description = maker_for("vllm").build(adapted, settings, out)
    values = maker_for("vllm").template_values(out, settings)

    assert passed_on(adapted, out) == FOUR
    assert description["adapters"] == {"polite": 8, "terse": 40}
    assert values["loras"] == {"polite": "lora/polite", "terse": "lora/terse"}
    room = {"enable_lora": True, "max_loras": 2, "max_cpu_loras": 2, "max_lora_rank": 64}
    assert room.items() <= values["options"].items()


def test_fewer_adapters_are_on_the_gpu_at_once_where_the_spec_says_so(adapted, out):
    settings = asked("vllm", lora=ADAPTERS, options={"max_loras": 1})
    maker_for("vllm").build(adapted, settings, out)

    options = maker_for("vllm").template_values(out, settings)["options"]

    assert (options["max_loras"], options["max_cpu_loras"]) == (1, 2)


def test_without_adapters_vllm_is_asked_for_none(checkpoint, out):
    maker_for("vllm").build(checkpoint, asked("vllm"), out)

    values = maker_for("vllm").template_values(out, asked("vllm"))

    assert values["loras"] == {}
    assert not any("lora" in name for name in values["options"])


def test_an_adapter_that_is_cut_off_is_refused_by_build(adapted, out):
    weights = adapted / "lora" / "terse" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])

    with refused(what="adapter_model.safetensors", remedy="Choose another revision."):
        maker_for("vllm").build(adapted, asked("vllm", lora=ADAPTERS), out)


@pytest.mark.parametrize(("ranks", "size"), [([], 0), ([1], 1), ([2], 8), ([16, 8], 16), ([17], 32), ([257], 320)])
def test_room_is_of_a_size_that_vllm_takes(ranks, size):
    assert max_rank(ranks, VLLM_ADAPTERS) == size


DRAFTED = {"method": "eagle3", "repo": "org/draft", "num_tokens": 3}


@pytest.fixture
def drafted(checkpoint):
    """The checkpoint with a draft model beside it, whose configuration is in the newer form."""
    import numpy as np

    folder = checkpoint / "draft"
    folder.mkdir()
    save_file({"weight": np.zeros((2, 2), dtype=np.float16)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of("llama", "newer")))
    return checkpoint


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_model_passes_through_and_its_positions_are_read_as_the_models_are(kind, drafted, tmp_path):
    quantized, out = tmp_path / "quantized", tmp_path / "engine"
    for each in (quantized, out):
        each.mkdir()
    settings = asked(kind, speculative=DRAFTED)
    maker_for(kind).quantize(drafted, settings, quantized, Texts())
    maker_for(kind).build(quantized, settings, out)

    assert (out / "draft" / "model.safetensors").read_bytes() == (drafted / "draft" / "model.safetensors").read_bytes()
    assert differences(config_of("llama"), json.loads((out / "draft" / "config.json").read_text()), 4) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_model_that_is_missing_is_no_engine(kind, checkpoint, out):
    with refused(what="weights"):
        maker_for(kind).build(checkpoint, asked(kind, speculative=DRAFTED), out)


@pytest.fixture
def headed(checkpoint):
    """Writes a head and embeddings of one model; whether they are in one file."""
    import numpy as np

    def write(*, tied, same, shards=1):
        config = {**TINY, "model_type": "llama", "tie_word_embeddings": tied}
        (checkpoint / "config.json").write_text(json.dumps(config))
        embeddings = np.arange(16, dtype=np.float16).reshape(4, 4)
        head = embeddings if same else embeddings + 1
        tensors = {"model.embed_tokens.weight": embeddings, "lm_head.weight": head, "mtp.lm_head.weight": head + 2}
        if shards == 1:
            save_file(tensors, checkpoint / "model.safetensors")
        else:
            (checkpoint / "model.safetensors").unlink()
            for number, (name, value) in enumerate(tensors.items(), start=1):
                save_file({name: value}, checkpoint / f"model-0000{number}-of-00002.safetensors")

    return write


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_head_of_its_own_that_servers_would_leave_out_is_refused(headed, checkpoint, out, kind, shards):
    headed(tied=True, same=False, shards=shards)

    with refused(what="has a head of its own", found="tie_word_embeddings true"):
        maker_for(kind).quantize(checkpoint, asked(kind), out, Texts())


@pytest.mark.parametrize("fields", [{"tied": True, "same": True}, {"tied": False, "same": False}])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_head_that_is_the_embeddings_or_is_not_said_to_be_is_taken(headed, checkpoint, out, fields, shards):
    headed(**fields, shards=shards)

    assert maker_for("vllm").quantize(checkpoint, asked("vllm"), out, Texts())["weights_bytes"]


def test_layers_in_16_bits_that_nothing_leaves_out_are_refused_by_the_names_in_one_file(checkpoint, out):
    import numpy as np

    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float"}, "format": "nvfp4-pack-quantized"}
    quantized = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    (checkpoint / "config.json").write_text(
        json.dumps({**TINY, "model_type": "llama", "quantization_config": quantized})
    )
    names = ("model.layers.0.mlp.up_proj.weight_packed", "model.layers.1.mlp.up_proj.weight")
    save_file({name: np.zeros((2, 2), np.uint8) for name in names}, checkpoint / "model.safetensors")

    with refused(what="layers in 16 bits", found="1 of them, the first model.layers.1.mlp.up_proj"):
        maker_for("vllm").quantize(checkpoint, asked("vllm"), out, Texts())
