"""Stands in for hf_lora_convert.py of TensorRT-LLM 1.2, as read at NVIDIA/TensorRT-LLM 05316d33: same flags, same files.

A row for each linear layer of a decoder layer, with both matrices and zeros behind them. A tensor of another name is left out
and only printed. FORGETS, the name of a layer, makes it leave that out too.
"""

import argparse
import json
import os
import re
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

MODULES = {
    "q_proj": 1,
    "k_proj": 2,
    "v_proj": 3,
    "o_proj": 4,
    "gate_proj": 5,
    "down_proj": 6,
    "up_proj": 7,
}
NAME = re.compile(r".*\.layers\.([0-9]+)\.(self_attn|mlp)\.([a-z_]+)\.lora_(A|B)\.weight.*")
# NumPy has no bfloat16: two bytes an element, under the type of void
TYPES = {"float16": np.float16, "bfloat16": np.dtype("V2"), "float32": np.float32}

parser = argparse.ArgumentParser()
parser.add_argument("--out-dir", "-o", type=Path, required=True)
parser.add_argument("--in-file", "-i", type=Path, required=True)
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--storage-type", choices=TYPES, default="float16")
flags = parser.parse_args()

config = json.loads((flags.in_file / "adapter_config.json").read_text())
pairs = {}
for name, tensor in load_file(flags.in_file / "adapter_model.safetensors").items():
    found = NAME.match(name)
    if found is None or found[3] == os.environ.get("FORGETS"):
        print(f"no match {name}")
        continue
    pairs.setdefault((int(found[1]), found[3]), {})[found[4]] = tensor
rows, numbers = [], []
for (layer, module), both in pairs.items():
    scaled = both["B"] * (config["lora_alpha"] / config["r"])
    rows.append(np.concatenate([both["A"].flatten(), scaled.flatten()]))
    numbers.append([MODULES[module], layer, min(both["A"].shape)])
width = max(map(len, rows))
weights = np.stack([np.pad(row, (0, width - len(row))) for row in rows])[np.newaxis].astype(np.float32)
if flags.storage_type == "bfloat16":
    weights = (weights.view(np.uint32) >> 16).astype(np.uint16).view("V2")
else:
    weights = weights.astype(TYPES[flags.storage_type])
flags.out_dir.mkdir(parents=True, exist_ok=True)
np.save(flags.out_dir / "model.lora_weights.npy", weights)
np.save(flags.out_dir / "model.lora_config.npy", np.array(numbers, dtype=np.int32)[np.newaxis])
