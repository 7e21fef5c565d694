"""Run in the environment of ModelOpt: quantizes checkpoints in each format named, and writes what came of it as JSON.

python quantize_demo.py JOB.json, where a job is {"checkpoint", "calibration", "perplexity", "runs": [{"format", "out", ...}],
"dropped": {FOLDER: [FIELD, ...]}, "folders": [FOLDER, ...]}. The last two are what drop_settings.py and read_transformers.py do:
a process that has imported ModelOpt costs more than all that is asked of it.
"""

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.engines.checkpoint.perplexity import perplexity
from slipway.tasks.engines.huggingface.modelopt import quantize_with_modelopt
from slipway.tasks.engines.huggingface.modelopt_readback import dequantized
from tests.local.modelopt.drop_settings import likeness_without
from tests.local.modelopt.read_transformers import read


def reloaded(folder):
    """The model that the written config.json describes, with the written weights, dequantized, in 32-bit floats."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    found = model.load_state_dict(dequantized(folder), strict=False)
    assert not found.unexpected_keys
    assert set(found.missing_keys) <= ({"lm_head.weight"} if config.tie_word_embeddings else set())
    model.tie_weights()
    return model


def compared_again(source, folder, texts):
    """Perplexity of what was written, and how alike its logits and the source's are: the mean of their cosines."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    first, second = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval(), reloaded(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)  # the written one
    sequences = [tokenizer(text)["input_ids"] for text in texts]

    def logits(model, ids):
        with torch.inference_mode():
            return model(torch.tensor([ids])).logits[0]

    cosines = [
        torch.nn.functional.cosine_similarity(logits(first, ids), logits(second, ids), dim=-1) for ids in sequences
    ]
    return {
        "reloaded_perplexity": perplexity(sequences, lambda ids: logits(second, ids).numpy()).value,
        "likeness": float(torch.cat(cosines).mean()),
    }


def run(job, asked):
    out = Path(asked["out"])
    out.mkdir(parents=True)
    source = asked.get("checkpoint", job["checkpoint"])
    began = time.monotonic()
    try:
        metrics = quantize_with_modelopt(
            Path(source),
            asked["format"],
            job["calibration"][: asked.get("texts")],
            out,
            device="cpu",
            kv_cache=asked.get("kv_cache", "none"),
            perplexity_texts=job["perplexity"][: asked.get("measured")] if asked.get("measure", True) else [],
        )
    except PipelineError as error:
        return {
            "error": type(error).__name__,
            "message": str(error),
            "files": sorted(file.name for file in out.iterdir()),
        }
    metrics["seconds"] = time.monotonic() - began
    if asked.get("measure", True):
        metrics |= compared_again(source, out, job["perplexity"][: asked.get("measured")])
    metrics["files"] = sorted(file.name for file in out.iterdir())
    return metrics


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    found = {
        "runs": [run(job, asked) for asked in job["runs"]],
        "dropped": {folder: likeness_without(Path(folder), fields) for folder, fields in job["dropped"].items()},
        "read": read({"classes": [], "defaults": {}, "folders": job["folders"]}),
    }
    Path(sys.argv[1]).with_suffix(".result.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
