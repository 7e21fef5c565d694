"""Parts of the GPU check that need toolkits, each run as a process of its own: one that dies or keeps the GPU's memory ends alone.

    python -m tests.gpu.parts PART JOB.json

A job is a JSON object of the part's arguments; the result, a JSON object too, is written beside it.
"""

import json
import shutil
import sys
from pathlib import Path

from tests.support.paths import REPOSITORY

TEMPLATES = REPOSITORY / "model_repository_templates"
LIMITS = {"max_batch_size": 4, "max_input_tokens": 192, "max_sequence_tokens": 256}
ANYTHING = {"prompt": "What is the capital of France?", "answer": r"(?s)\S", "match": "regex", "max_tokens": 8}
OWN_FIELDS = {"quantization_config", "_name_or_path"}


def source(folder, dtype):
    """The random Llama without a default in it; `control` beside it has lost its positions, as a wrong export has."""
    from tests.fixtures.odd_checkpoints import write_checkpoint

    # TensorRT-LLM's Llama computes SiLU whatever hidden_act says
    written = write_checkpoint(Path(folder), "llama", dtype=dtype, hidden_act="silu", eos_token_id=1)
    control = Path(shutil.copytree(written, f"{folder}-control"))
    config = json.loads((control / "config.json").read_text())
    del config["rope_theta"], config["rope_scaling"]
    (control / "config.json").write_text(json.dumps(config))
    return {}


def quantize(folder, out, quantization, device, texts):
    """The step's own code: quantized, exported, read back; then read by the transformers of this environment."""
    from transformers import AutoConfig

    from slipway.tasks.engines.huggingface.modelopt import quantize_with_modelopt

    Path(out).mkdir()
    metrics = quantize_with_modelopt(
        Path(folder), quantization, texts, Path(out), device=device, perplexity_texts=texts[:4]
    )
    expected, found = (AutoConfig.from_pretrained(each).to_dict() for each in (folder, out))
    differ = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert set(differ) <= OWN_FIELDS, f"transformers reads other values of {differ} in the export than in the source"
    return {name: metrics[name] for name in ("source_bytes", "weights_bytes", "quantization", "versions")}


def generate_transformers(folders, prompts, tokens, device, quantized=False):
    """Greedy tokens of each checkpoint, by its name; one that is quantized is dequantized into the model that its config.json
    describes."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from slipway.tasks.engines.huggingface.modelopt_readback import dequantized

    def model_of(folder):
        if not quantized:
            return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        config = AutoConfig.from_pretrained(folder)
        del config.quantization_config
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model.load_state_dict(dequantized(Path(folder)), strict=False)
        model.tie_weights()
        return model

    def answers_of(model):
        for prompt in prompts:
            ids = list(prompt)
            with torch.inference_mode():
                for _ in range(tokens):
                    ids.append(int(model(torch.tensor([ids], device=device)).logits[0, -1].argmax()))
            yield ids[len(prompt) :]

    return {name: list(answers_of(model_of(folder).to(device).eval())) for name, folder in folders.items()}


def generate_tensorrt_llm(folder, prompts, tokens):
    """Greedy tokens by TensorRT-LLM's LLM API, loaded as the llmapi model loads it."""
    from tensorrt_llm.llmapi import LLM, KvCacheConfig, SamplingParams

    llm = LLM(
        model=folder, max_seq_len=256, max_batch_size=4, kv_cache_config=KvCacheConfig(free_gpu_memory_fraction=0.2)
    )
    asked = SamplingParams(max_tokens=tokens, temperature=0.0, end_id=-1)
    answers = [list(answer.outputs[0].token_ids) for answer in llm.generate(prompts, asked)]
    llm.shutdown()
    return {"tokens": answers}


def generate_vllm(folder, prompts, tokens):
    """Greedy tokens by vLLM."""
    from vllm import LLM, SamplingParams

    llm = LLM(model=folder, max_model_len=256, gpu_memory_utilization=0.3, enforce_eager=True)
    asked = SamplingParams(max_tokens=tokens, temperature=0.0, ignore_eos=True)
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], asked)
    return {"tokens": [list(answer.outputs[0].token_ids) for answer in answers]}


def build(folder, out, quantization, texts):
    """An engine by TensorRT-LLM's own tools and the step's code, with its read-back."""
    from slipway.tasks.engines.checkpoint.calibration_texts import Texts
    from slipway.tasks.engines.trtllm.maker import TrtMaker

    spec, engine = _spec("trt-engine", quantization), TrtMaker()
    quantized, built = Path(out, "checkpoint"), Path(out, "engine")
    for each in (quantized, built):
        each.mkdir(parents=True)
    engine.quantize(Path(folder), spec, quantized, Texts(calibration=texts))
    return {"engine": str(built), "description": engine.build(quantized, spec, built)}


def serve(kind, engine_dir, out):
    """The repository of an engine in real Triton, by the boot test's own code; any answer counts, for weights are random."""
    import time

    from slipway.tasks.contracts.spec.question import SmokeQuestion
    from slipway.tasks.engines.registry import maker_for
    from slipway.tasks.serving.pod.boot import BootTest
    from slipway.tasks.serving.rendered.repository import render
    from slipway.tasks.steps.assemble import serving_command

    repository, spec, engine = Path(out, "repository"), _spec(kind, "none"), maker_for(kind)
    repository.mkdir(parents=True)
    if kind != "trt-engine":
        built = Path(out, "built")
        built.mkdir()
        engine.build(Path(engine_dir), spec, built)
        engine_dir = str(built)
    values = {**engine.template_values(Path(engine_dir), spec), "repository_root": str(repository)}
    render(TEMPLATES, kind, values, repository)
    shutil.copytree(engine_dir, repository / spec.name / "1" / "engine")
    boot = BootTest(time, Path(out), lambda place: serving_command(spec, place), ready_timeout_s=300)
    return boot.ask(repository, spec.name, SmokeQuestion(**ANYTHING)).as_json()


def _spec(kind, quantization):
    from tests.fakes.releases import spec

    calibration = {"dataset": "hf://datasets/any/texts@main/texts.jsonl", "samples": 8, "max_tokens": 128}
    return spec(
        quantization={"format": quantization, "calibration": calibration if quantization != "none" else None},
        engine={"kind": kind, "gpu": "any", **LIMITS, "options": {"kv_cache_fraction": 0.2}},
    )


PARTS = {
    part.__name__: part
    for part in (source, quantize, generate_transformers, generate_tensorrt_llm, generate_vllm, build, serve)
}


def main():
    part, job = sys.argv[1], Path(sys.argv[2])
    result = PARTS[part](**json.loads(job.read_text()))
    job.with_suffix(".result.json").write_text(json.dumps(result))


if __name__ == "__main__":  # toolkits start processes of their own, which import this file again
    main()
