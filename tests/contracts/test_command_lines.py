"""Every command line that Slipway makes for TensorRT-LLM and Triton stays within what these tools are recorded to take."""

import itertools
import shlex
from pathlib import Path

import pytest

from slipway.tasks.contracts.spec.gpu_formats import FORMATS, KV_CACHES
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.lora_modules import MODULES
from slipway.tasks.engines.preflight.engine_options import GUIDED_BACKENDS
from slipway.tasks.engines.trtllm.commands import (
    VOCABULARY_SCRIPT,
    EngineLora,
    build_command,
    convert_command,
    lora_command,
    lora_flags,
    quantize_command,
    vocabulary_command,
)
from slipway.tasks.engines.trtllm.families import CONVERTERS, QUANTIZED, check_converted, converter_of
from slipway.tasks.engines.trtllm.loras import LORA_CONFIG, LORA_WEIGHTS, TRITON_TYPES
from slipway.tasks.engines.trtllm.vocabulary import FIELDS, VOCABULARY
from slipway.tasks.serving.rendered import commands
from tests.contracts.recorded import check_command, contract
from tests.fakes.hubs.public_hub import MODELS
from tests.fakes.releases import SPEC, spec
from tests.support.goldens import check_goldens
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

BUILD, QUANTIZE, CONVERT = (contract(f"{name}.yaml") for name in ("trtllm_build", "quantize", "convert_checkpoint"))
LORA = contract("hf_lora_convert.yaml")
VOCABULARY_CONTRACT = contract("generate_xgrammar_tokenizer_info.yaml")
SERVER = contract("tritonserver.yaml")
FORMATS_OF_ENGINES = [row.format for row in FORMATS if row.kind == "trt-engine"]
CACHES_OF_ENGINES = [row.format for row in KV_CACHES if row.kind == "trt-engine"]
PRECISIONS = list(itertools.product(FORMATS_OF_ENGINES, CACHES_OF_ENGINES))
EXAMPLES, CHECKPOINT, OUT = Path("/app/examples"), Path("/scratch/checkpoint"), Path("/scratch/out")
TEXTS, TIMING = Path("/scratch/texts"), Path("/scratch/timing.cache")
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl", "samples": 64, "max_tokens": 512}


def asked(quantization="none", kv_cache="none", **engine):
    settings = {**SPEC["engine"], "kind": "trt-engine", "gpu": "NVIDIA-L4", **engine}
    return spec(
        quantization={"format": quantization, "kv_cache": kv_cache, "calibration": CALIBRATION}, engine=settings
    )


def shipped(name):
    return ReleaseSpec.model_validate(load_yaml((REPOSITORY / "specs" / f"{name}.yaml").read_text()))


def value_of(command, flag):
    return command[command.index(flag) + 1]


@pytest.mark.parametrize(("quantization", "kv_cache"), PRECISIONS)
def test_every_format_and_cache_is_quantized_by_flags_that_there_are(quantization, kv_cache):
    command = quantize_command(
        EXAMPLES / "quantization/quantize.py",
        CHECKPOINT,
        OUT,
        asked(quantization, kv_cache),
        calibration=TEXTS,
        samples=64,
    )

    assert command[:2] == ["python3", "/app/examples/quantization/quantize.py"]
    check_command(command[2:], QUANTIZE)
    assert value_of(command, "--calib_dataset") == str(TEXTS), "and never the quantizer's own, from the internet"


@pytest.mark.parametrize(("quantization", "kv_cache"), PRECISIONS)
def test_every_format_and_cache_is_built_by_flags_that_there_are(quantization, kv_cache):
    command = build_command(CHECKPOINT, OUT, asked(quantization, kv_cache), timing_cache=TIMING, workers=4)

    assert command[0] == "trtllm-build"
    check_command(command[1:], BUILD)


CLASSES = contract("causal_models.yaml")["classes"]
TYPES = {architecture: model_type for model_type, architecture in CLASSES.items()}
"""model_type by architecture, of models that AutoModelForCausalLM loads as what they are."""


def recorded_flags(folder):
    """The flags of the script in this folder; those of two scripts are recorded together."""
    return {**CONVERT, "flags": CONVERT["others"].get(folder, CONVERT["flags"])}


def converted(architecture, **engine):
    converter = converter_of(architecture)
    script = EXAMPLES / converter.script
    return convert_command(converter, script, CHECKPOINT, OUT, asked(**engine), dtype="bfloat16")


@pytest.mark.parametrize("architecture", CONVERTERS)
def test_each_architecture_goes_to_a_script_that_takes_its_model_type(architecture):
    converter = CONVERTERS[architecture]

    assert converter.script == f"{converter.folder}/convert_checkpoint.py"
    assert TYPES[architecture] in CONVERT["models"][converter.folder]


@pytest.mark.parametrize("architecture", CONVERTERS)
def test_each_script_splits_weights_as_recorded(architecture):
    converter = CONVERTERS[architecture]
    splits = CONVERT["splits"].get(converter.folder, {}) | CONVERT["splits"].get(TYPES[architecture], {})

    assert {name for name in ("tensor", "pipeline") if not getattr(converter, name)} == set(splits)


@pytest.mark.parametrize("architecture", CONVERTERS)
def test_weights_that_keep_their_precision_are_converted_by_flags_that_there_are(architecture):
    converter = CONVERTERS[architecture]
    ranks = {"tensor_parallel": 4 if converter.tensor else 1, "pipeline_parallel": 2 if converter.pipeline else 1}
    check_converted(architecture, asked(**ranks).engine)

    command = converted(architecture, **ranks)

    check_command(command[2:], recorded_flags(converter.folder))
    assert value_of(command, converter.tensor_flag) == str(ranks["tensor_parallel"])
    assert ("--pp_size" in command) == converter.pipeline
    assert value_of(command, "--dtype") == ("auto" if converter.reads_dtype else "bfloat16")


def test_a_script_that_takes_no_auto_gets_the_type_that_auto_would_choose():
    converter = converter_of("DeepseekV2ForCausalLM")
    command = convert_command(converter, EXAMPLES / converter.script, CHECKPOINT, OUT, asked(), dtype="float32")

    assert value_of(command, "--dtype") == "float16"


@pytest.mark.parametrize("architecture", sorted(QUANTIZED))
def test_what_plan_lets_quantize_is_loaded_known_and_built_upstream(architecture):
    known = [name for name in QUANTIZE["models"]["patterns"] if name.lower() in architecture.lower()]

    assert known
    assert architecture in QUANTIZE["models"]["built"]
    assert architecture in TYPES


@pytest.mark.parametrize("architecture", sorted(set(CONVERTERS) - QUANTIZED))
def test_what_plan_only_converts_has_no_model_type_for_quantizing(architecture):
    assert not [name for name in QUANTIZE["models"]["patterns"] if name.lower() in architecture.lower()]


def test_room_for_adapters_is_built_by_flags_that_there_are():
    lora = EngineLora(("attn_q", "attn_k", "attn_v"), 16)
    command = build_command(CHECKPOINT, OUT, asked(), timing_cache=TIMING, workers=1, lora=lora)
    plain = build_command(CHECKPOINT, OUT, asked(), timing_cache=TIMING, workers=1)

    assert command == [*plain, *lora_flags(lora)]
    assert command[-4:] == ["--lora_target_modules", "attn_q", "attn_k", "attn_v"]
    check_command(command[1:], BUILD)
    assert value_of(command, "--max_lora_rank") == "16"


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_adapters_are_converted_by_flags_that_there_are(dtype):
    command = lora_command(EXAMPLES / "hf_lora_convert.py", Path("/scratch/lora/polite"), OUT, dtype)

    assert command[:2] == ["python3", "/app/examples/hf_lora_convert.py"]
    check_command(command[2:], LORA)


def test_adapters_have_the_names_of_layers_and_files_that_tensorrt_llm_gives():
    assert {layer: name for layer, (name, _) in LORA["modules"].items()} == MODULES
    assert LORA["files"] == [LORA_WEIGHTS, LORA_CONFIG]


def test_the_vocabulary_is_described_by_flags_that_there_are():
    command = vocabulary_command(EXAMPLES / VOCABULARY_SCRIPT, Path("/scratch/tokenizer"), OUT)

    assert command[:2] == ["python3", f"/app/examples/{VOCABULARY_CONTRACT['tool']}"]
    check_command(command[2:], VOCABULARY_CONTRACT)
    assert VOCABULARY_CONTRACT["file"] == VOCABULARY
    assert list(FIELDS) == VOCABULARY_CONTRACT["reads"]
    assert sorted(GUIDED_BACKENDS) == VOCABULARY_CONTRACT["backends"]


@pytest.mark.parametrize("architecture", [name for name, converter in CONVERTERS.items() if converter.experts])
def test_experts_are_shared_out_by_flags_that_the_converters_have(architecture):
    command = converted(architecture, tensor_parallel=4, expert_parallel=2)

    check_command(command[2:], recorded_flags(CONVERTERS[architecture].folder))
    assert (value_of(command, "--moe_tp_size"), value_of(command, "--moe_ep_size")) == ("2", "2")


@pytest.mark.parametrize(
    ("quantization", "kv_cache", "paged", "fp8"),
    [
        ("int4_awq", "none", "enable", "disable"),
        ("fp8", "none", "enable", "disable"),
        ("fp8", "fp8", "enable", "enable"),
        ("w4a8_awq", "fp8", "enable", "enable"),
        ("int4_awq", "fp8", "disable", "disable"),
        ("int8_sq", "int8", "disable", "disable"),
    ],
)
def test_the_command_switches_off_what_the_builder_would(quantization, kv_cache, paged, fp8):
    command = build_command(CHECKPOINT, OUT, asked(quantization, kv_cache), timing_cache=TIMING, workers=1)

    assert value_of(command, "--use_paged_context_fmha") == paged
    assert value_of(command, "--use_fp8_context_fmha") == fp8


def test_limits_reach_the_builder():
    settings = {"max_batch_size": 9, "max_input_tokens": 9000, "max_sequence_tokens": 9100}
    command = build_command(CHECKPOINT, OUT, asked(**settings), timing_cache=TIMING, workers=1)

    limits = ["--max_batch_size", "--max_input_len", "--max_seq_len", "--max_num_tokens"]
    assert [value_of(command, flag) for flag in limits] == ["9", "9000", "9100", "9000"]


def test_the_smallest_step_is_one_block_of_the_cache():
    settings = {"max_batch_size": 1, "max_input_tokens": 8, "max_sequence_tokens": 16}
    command = build_command(CHECKPOINT, OUT, asked(**settings), timing_cache=TIMING, workers=1)

    assert int(value_of(command, "--max_num_tokens")) == BUILD["flags"]["--tokens_per_block"]["default"]


def test_servers_are_started_by_flags_that_there_are():
    server = commands.Server("127.0.0.1", 30, "region")

    check_command(commands.single(server)[1:], SERVER)
    for number in (0, 1):
        check_command(commands.rank(server, number)[1:], SERVER)


def lines(command):
    """A command as a person reads it: a flag and its values on a line."""
    words = [f"\n  {word}" if word.startswith("--") else word for word in map(shlex.quote, command)]
    return " ".join(words).replace(" \n", " \\\n") + "\n"


@pytest.mark.parametrize("name", ["llama-3-8b-awq-l4", "llama-3-70b-fp8-h100x4", "llama-3-8b-tp4pp2-a10g"])
def test_the_commands_of_the_specs_that_ship_are_the_ones_that_were_looked_at(name):
    asked = shipped(name)
    ranks = asked.engine.tensor_parallel * asked.engine.pipeline_parallel
    if asked.quantization.format == "none":
        architecture = MODELS[asked.source.repo]["config"]["architectures"][0]
        converter = converter_of(architecture)
        script = EXAMPLES / converter.script
        first = {"convert.txt": convert_command(converter, script, CHECKPOINT, OUT, asked, dtype="bfloat16")}
    else:
        script, samples = EXAMPLES / "quantization/quantize.py", asked.quantization.calibration.samples
        command = quantize_command(script, CHECKPOINT, OUT, asked, calibration=TEXTS, samples=samples)
        first = {"quantize.txt": command}
    build = build_command(CHECKPOINT, OUT, asked, timing_cache=TIMING, workers=min(ranks, 4))

    check_goldens(f"commands/{name}", {file: lines(words) for file, words in {**first, "build.txt": build}.items()})
