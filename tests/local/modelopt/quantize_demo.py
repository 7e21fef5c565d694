"""Run in the environment of ModelOpt: quantizes a checkpoint in each format named, and prints what came of it as JSON.

python quantize_demo.py JOB.json, where a job is {"checkpoint", "calibration", "perplexity", "runs": [{"format", "out", ...}]}.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tasks.contracts.errors import PipelineError
from tasks.engines.modelopt_ptq import quantize_with_modelopt
from tasks.engines.modelopt_readback import dequantized
from tasks.engines.perplexity import perplexity


def reloaded_perplexity(source, folder, texts):
    """Of the source's architecture with the written weights, dequantized, in 32-bit floats."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    found = model.load_state_dict(dequantized(folder), strict=True)
    assert not found.missing_keys
    tokenizer = AutoTokenizer.from_pretrained(folder)  # the written one

    def logits(ids):
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0].numpy()

    return perplexity([tokenizer(text)["input_ids"] for text in texts], logits).value


def run(job, asked):
    out = Path(asked["out"])
    out.mkdir(parents=True)
    began = time.monotonic()
    try:
        metrics = quantize_with_modelopt(
            Path(asked.get("checkpoint", job["checkpoint"])),
            asked["format"],
            job["calibration"][: asked.get("texts")],
            out,
            device="cpu",
            kv_cache=asked.get("kv_cache", "none"),
            perplexity_texts=job["perplexity"] if asked.get("measure", True) else [],
        )
    except PipelineError as error:
        return {
            "error": type(error).__name__,
            "message": str(error),
            "files": sorted(file.name for file in out.iterdir()),
        }
    metrics["seconds"] = time.monotonic() - began
    if asked.get("measure", True):
        metrics["reloaded_perplexity"] = reloaded_perplexity(job["checkpoint"], out, job["perplexity"])
    metrics["files"] = sorted(file.name for file in out.iterdir())
    return metrics


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    results = [run(job, asked) for asked in job["runs"]]
    Path(sys.argv[1]).with_suffix(".result.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
