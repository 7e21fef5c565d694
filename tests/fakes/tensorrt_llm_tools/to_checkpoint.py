"""Stands in for quantize.py and convert_checkpoint.py of TensorRT-LLM 1.2."""

import argparse
import json
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

parser = argparse.ArgumentParser()
for name in ("--model_dir", "--output_dir", "--dtype", "--calib_dataset", "--kv_cache_dtype"):
    parser.add_argument(name)
for name in ("--tp_size", "--pp_size", "--calib_size", "--calib_max_seq_length", "--tokenizer_max_seq_length"):
    parser.add_argument(name, type=int)
parser.add_argument("--qformat", default="full_prec")
asked = parser.parse_args()

if asked.calib_dataset:
    texts = [json.loads(line)["text"] for line in (Path(asked.calib_dataset) / "train.jsonl").read_text().splitlines()]
    print(f"calibrating over {len(texts)} texts")
    if len(texts) != asked.calib_size:
        sys.exit("RuntimeError: the data set is too small")
if "fail" in (Path(asked.model_dir) / "config.json").read_text():
    sys.exit("torch.cuda.OutOfMemoryError: CUDA out of memory")
source = json.loads((Path(asked.model_dir) / "config.json").read_text())
config = {
    "architecture": source["architectures"][0],
    "dtype": "bfloat16",
    "mapping": {
        "world_size": asked.tp_size * asked.pp_size,
        "tp_size": asked.tp_size,
        "pp_size": asked.pp_size,
        "gpus_per_node": 8,
    },
    "quantization": {
        "quant_algo": ALGOS[asked.qformat],
        "kv_cache_quant_algo": asked.kv_cache_dtype.upper() if asked.kv_cache_dtype else None,
    },
}
(Path(asked.output_dir) / "config.json").write_text(json.dumps(config))
for rank in range(asked.tp_size * asked.pp_size):
    (Path(asked.output_dir) / f"rank{rank}.safetensors").write_bytes(b"weights of a rank")
