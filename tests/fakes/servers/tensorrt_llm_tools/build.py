"""Stands in for trtllm-build of TensorRT-LLM 1.2: clips, switches off and refuses what the real builder does, builds nothing.

Rules are those of tensorrt_llm/_common.py (check_max_num_tokens, at 0fccc5b9), tensorrt_llm/builder.py (_init_max_seq_len and
build, at 008b2b8d) and tensorrt_llm/commands/build.py (at 65f1d153), for flags in the form that Slipway gives them.
SM is the compute capability of the GPU, GPUS their number. SPOIL, a JSON object of dotted paths, makes it write something else.
"""

import argparse
import json
import os
import sys
from pathlib import Path

FP8_WORKFLOW = ("FP8", "W4A8_AWQ", "NVFP4")
SWITCH = {"enable": True, "disable": False}
TOKENS_PER_BLOCK = 32
LORA_MODULES = ["attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"]


def main():
    flags = arguments()
    checkpoint, out = Path(flags.checkpoint_dir), Path(flags.output_dir)
    pretrained = json.loads((checkpoint / "config.json").read_text())
    if min(int(os.environ.get("GPUS", "8")), flags.workers) < 1:
        sys.exit("ValueError: max_workers must be greater than 0")
    check_architecture(pretrained)
    limits, plugins = limits_of(flags), plugins_of(flags, pretrained["quantization"])
    config = {
        "version": "1.2.1",
        "pretrained_config": pretrained,
        "build_config": {
            **limits,
            "kv_cache_type": flags.kv_cache_type.upper(),
            "plugin_config": plugins,
            "lora_config": lora_config_of(flags),
        },
    }
    Path(flags.output_timing_cache).write_bytes(b"timings")
    ranks = spoil(config, range(pretrained["mapping"]["world_size"]))
    for rank in ranks:
        assert (checkpoint / f"rank{rank}.safetensors").exists() or "SPOIL" in os.environ
        (out / f"rank{rank}.engine").write_bytes(b"engine of a rank")
    (out / "config.json").write_text(json.dumps(config))


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--checkpoint_dir", "--output_dir", "--output_timing_cache", "--gemm_plugin"):
        parser.add_argument(name, required=True)
    for name, default in (
        ("batch_size", 2048),
        ("input_len", 1024),
        ("seq_len", None),
        ("num_tokens", 8192),
        ("beam_width", 1),
    ):
        parser.add_argument(f"--max_{name}", type=int, default=default)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kv_cache_type", choices=["continuous", "paged", "disabled"], default="paged")
    for name in ("remove_input_padding", "context_fmha", "use_paged_context_fmha", "use_fp8_context_fmha"):
        parser.add_argument(f"--{name}", choices=SWITCH, default="enable")
    parser.add_argument("--multiple_profiles", choices=SWITCH, default="disable")
    parser.add_argument("--lora_plugin", choices=["auto", "float16", "bfloat16", "float32", "disable"])
    parser.add_argument("--lora_target_modules", nargs="+", choices=LORA_MODULES)
    parser.add_argument("--max_lora_rank", type=int, default=64)
    return parser.parse_args()


def lora_config_of(flags):
    """Queries, keys and values are enabled together (tensorrt_llm/lora_helper.py, at 037d4ba1)."""
    modules = list(flags.lora_target_modules or [])
    attention = LORA_MODULES[:3]
    if set(modules) & set(attention):
        modules += [each for each in attention if each not in modules]
    if flags.lora_plugin and not modules:
        sys.exit("ValueError: lora_target_modules is empty.")
    return {"lora_dir": [], "max_lora_rank": flags.max_lora_rank, "lora_target_modules": modules}


def limits_of(flags):
    """Without padding and with fused attention, as the rules for other cases are not rebuilt here."""
    assert flags.remove_input_padding == flags.context_fmha == "enable"
    length = flags.max_seq_len
    tokens = min(flags.max_num_tokens, length * flags.max_batch_size)
    return {
        "max_batch_size": flags.max_batch_size,
        "max_input_len": min(flags.max_input_len, length),
        "max_seq_len": length,
        "max_num_tokens": max(tokens, TOKENS_PER_BLOCK),
        "max_beam_width": flags.max_beam_width,
    }


def plugins_of(flags, quantization):
    """What the builder leaves switched on, by the formats of weights and cache and by the GPU."""
    algorithm, cache = quantization["quant_algo"], quantization["kv_cache_quant_algo"]
    paged, fp8, sm = SWITCH[flags.use_paged_context_fmha], SWITCH[flags.use_fp8_context_fmha], int(os.environ["SM"])
    if algorithm not in FP8_WORKFLOW or sm < 89:
        fp8, paged = False, paged and cache != "FP8"
    elif paged:
        fp8 = cache == "FP8"
    if cache == "INT8":
        paged = False
    if 100 <= sm < 120 and (cache == "INT8" or algorithm in ("W8A16", "W4A16")):
        sys.exit("RuntimeError: INT8/INT4 quantization is not supported on SM>=100.")
    if 100 <= sm < 120 and str(algorithm).startswith("W8A8_SQ"):
        sys.exit("RuntimeError: SmoothQuant is not supported on SM>=100.")
    return {
        "use_paged_context_fmha": paged,
        "use_fp8_context_fmha": fp8,
        "tokens_per_block": TOKENS_PER_BLOCK,
        "multiple_profiles": SWITCH[flags.multiple_profiles],
    }


def check_architecture(pretrained):
    if pretrained["architecture"] not in (
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen3ForCausalLM",
        "Gemma2ForCausalLM",
        "DeepseekV2ForCausalLM",
    ):
        sys.exit(f"AssertionError: Unsupported model architecture: {pretrained['architecture']}")


def spoil(config, ranks):
    for path, value in json.loads(os.environ.get("SPOIL", "{}")).items():
        if path == "ranks":
            ranks = range(value)
            continue
        *parents, last = path.split(".")
        target = config
        for name in parents:
            target = target[name]
        target[last] = value
    return ranks


main()
