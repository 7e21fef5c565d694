"""Stands in for trtllm-build of TensorRT-LLM 1.2. SPOIL, a JSON object of dotted paths, makes it write something else."""

import json
import os
import sys
from pathlib import Path

flags = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
checkpoint, out = Path(flags["--checkpoint_dir"]), Path(flags["--output_dir"])
pretrained = json.loads((checkpoint / "config.json").read_text())
config = {
    "version": "1.2.1",
    "pretrained_config": pretrained,
    "build_config": {
        "max_batch_size": int(flags["--max_batch_size"]),
        "max_input_len": int(flags["--max_input_len"]),
        "max_seq_len": int(flags["--max_seq_len"]),
        "max_num_tokens": int(flags["--max_num_tokens"]),
        "max_beam_width": int(flags["--max_beam_width"]),
        "plugin_config": {"use_paged_context_fmha": flags["--use_paged_context_fmha"] == "enable"},
    },
}
Path(flags["--output_timing_cache"]).write_bytes(b"timings")
ranks = range(pretrained["mapping"]["world_size"])
for path, value in json.loads(os.environ.get("SPOIL", "{}")).items():
    if path == "ranks":
        ranks = range(value)
        continue
    *parents, last = path.split(".")
    target = config
    for name in parents:
        target = target[name]
    target[last] = value
for rank in ranks:
    assert (checkpoint / f"rank{rank}.safetensors").exists() or "SPOIL" in os.environ
    (out / f"rank{rank}.engine").write_bytes(b"engine of a rank")
(out / "config.json").write_text(json.dumps(config))
