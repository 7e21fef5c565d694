"""Stands in for generate_xgrammar_tokenizer_info.py of TensorRT-LLM 1.2, as read at NVIDIA/TensorRT-LLM 7ed07f06: same flags,
same file. transformers loads a tokenizer by its own class, so a folder with an engine's config.json would fail.

FORGETS, the name of a field, makes it leave that out.
"""

import argparse
import json
import os
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=Path, required=True)
parser.add_argument("--output_dir", type=Path, required=True)
flags = parser.parse_args()

assert not (flags.model_dir / "config.json").exists(), "Unrecognized model: should have a `model_type` key"
tokenizer = (flags.model_dir / "tokenizer.json").read_text()
described = {"encoded_vocab": ["a", "b"], "tokenizer_str": tokenizer, "stop_token_ids": [1]}
described.pop(os.environ.get("FORGETS"), None)
flags.output_dir.mkdir(parents=True, exist_ok=True)
(flags.output_dir / "xgrammar_tokenizer_info.json").write_text(json.dumps(described))
