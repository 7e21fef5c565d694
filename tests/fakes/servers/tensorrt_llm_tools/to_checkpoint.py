"""Stands in for quantize.py and convert_checkpoint.py of TensorRT-LLM 1.2.

Rules are those of tensorrt_llm/quantization/quantize_by_modelopt.py (at 042c510d) and of the converters in
tensorrt_llm/models: the source's config.json is read as transformers 4.57 reads it. GPUS is the number of GPUs.
"""

import argparse
import json
import os
import sys
from pathlib import Path

ALGOS = {
    "full_prec": None,
    "int8_wo": "W8A16",
    "int4_wo": "W4A16",
    "int8_sq": "W8A8_SQ_PER_CHANNEL",
    "int4_awq": "W4A16_AWQ",
    "w4a8_awq": "W4A8_AWQ",
    "fp8": "FP8",
    "nvfp4": "NVFP4",
}
DIMENSIONS = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
)
UNCALIBRATED = ("full_prec", "int8_wo", "int4_wo")
QUANTIZES = Path(sys.argv[0]).name == "quantize.py"
FAMILY = Path(sys.argv[0]).parent.name
TYPES = ["float16", "bfloat16", "float32"] if FAMILY == "deepseek_v2" else ["auto", "float16", "bfloat16", "float32"]

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("--model_dir", "--output_dir"):
    parser.add_argument(name, required=True)
parser.add_argument("--dtype", choices=TYPES, default=TYPES[0])
if FAMILY == "gemma":
    parser.add_argument("--ckpt-type", choices=["jax", "keras", "torch", "hf"], required=True)
    parser.add_argument("--load_model_on_cpu", action="store_true")
    parser.add_argument("--world-size", dest="tp_size", type=int, default=1)
    parser.set_defaults(pp_size=1)
else:
    for name in ("--tp_size", "--pp_size"):
        parser.add_argument(name, type=int, default=1)
parser.set_defaults(moe_tp_size=-1, moe_ep_size=-1)
if not QUANTIZES and FAMILY not in {"gemma", "gpt"}:
    for name in ("--moe_tp_size", "--moe_ep_size"):
        parser.add_argument(name, type=int, default=-1)
if QUANTIZES:
    parser.add_argument("--qformat", choices=ALGOS, default="full_prec")
    parser.add_argument("--kv_cache_dtype", choices=["int8", "fp8"])
    parser.add_argument("--calib_dataset", default="cnn_dailymail")
    for name, default in (("calib_size", 512), ("calib_max_seq_length", 512), ("tokenizer_max_seq_length", 2048)):
        parser.add_argument(f"--{name}", type=int, default=default)
asked = parser.parse_args()
if not QUANTIZES and asked.moe_ep_size > 0 and asked.moe_tp_size * asked.moe_ep_size != asked.tp_size:
    sys.exit("AssertionError: moe_tp_size * moe_ep_size must equal to tp_size")
format_, cache = (asked.qformat, asked.kv_cache_dtype) if QUANTIZES else ("full_prec", None)

if QUANTIZES and os.environ.get("GPUS") == "0":
    sys.exit("OSError: GPU is required for inference.")
if format_ not in UNCALIBRATED or cache:
    if not Path(asked.calib_dataset).is_dir():
        sys.exit(f"datasets.exceptions.DatasetNotFoundError: Dataset '{asked.calib_dataset}' doesn't exist on the Hub")
    texts = [json.loads(line)["text"] for line in (Path(asked.calib_dataset) / "train.jsonl").read_text().splitlines()]
    print(f"calibrating over {len(texts)} texts")
    if len(texts) != asked.calib_size:
        sys.exit("RuntimeError: the data set is too small")
if "fail" in (Path(asked.model_dir) / "config.json").read_text():
    sys.exit("torch.cuda.OutOfMemoryError: CUDA out of memory")
source = json.loads((Path(asked.model_dir) / "config.json").read_text())
for name in ("config.json", "tokenizer_config.json"):
    document = Path(asked.model_dir) / name
    if document.exists() and "auto_map" in json.loads(document.read_text()):
        sys.exit(f"OSError: {asked.model_dir} does not appear to have the files that auto_map of {name} names")
config = {
    "architecture": source["architectures"][0],
    "dtype": source.get("dtype", source.get("torch_dtype", "float16")) if asked.dtype == "auto" else asked.dtype,
    **{name: source[name] for name in DIMENSIONS if name in source},
    "head_size": source.get("head_dim", source.get("hidden_size", 0) // source.get("num_attention_heads", 1)),
    "norm_epsilon": source.get("rms_norm_eps", 1e-6),
    "rotary_base": source.get("rope_theta", 10000.0),
    "rotary_scaling": source.get("rope_scaling"),
    "mapping": {
        "world_size": asked.tp_size * asked.pp_size,
        "tp_size": asked.tp_size,
        "pp_size": asked.pp_size,
        "gpus_per_node": 8,
        **({} if QUANTIZES else {"moe_tp_size": asked.moe_tp_size, "moe_ep_size": asked.moe_ep_size}),
    },
    "quantization": {"quant_algo": ALGOS[format_], "kv_cache_quant_algo": cache.upper() if cache else None},
}
(Path(asked.output_dir) / "config.json").write_text(json.dumps(config))
for rank in range(asked.tp_size * asked.pp_size):
    (Path(asked.output_dir) / f"rank{rank}.safetensors").write_bytes(b"weights of a rank")
