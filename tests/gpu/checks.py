"""The checks of the GPU check, in order: what each needs, what it runs, and what it calls right. Standard library only."""

import importlib.util
import json
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from slipway.tasks.engines.upstream.tables import table_of
from tests.gpu.report import FAILED, PASSED, SKIPPED, Line
from tests.support.paths import REPOSITORY

IMPORTS = ("torch", "transformers", "modelopt.torch.quantization", "tensorrt", "tensorrt_llm", "tensorrt_llm.llmapi")
IMPORTS += ("vllm", "triton", "tritonclient.grpc", "pydantic", "jinja2")
OWN = ("pydantic", "yaml", "safetensors")
SERVING = (*OWN, "jinja2", "tritonclient")
EXAMPLES = (Path("/app/examples"), Path("/app/tensorrt_llm/examples"))
LIMIT_S = 900
PROMPTS, PROMPT_TOKENS, ANSWER_TOKENS = 24, 96, 4
AGREE = {"none": 0.8, "fp8": 0.5, "int4_awq": 0.3, "nvfp4": 0.2}
"""Least share of prompts whose first token is the source's, by format. Measured on a CPU with dequantized weights: 0.71 in fp8,
0.46 in int4_awq; a Llama without its positions 0.08."""
TEXTS = [
    f"Question {number}: what is the capital of country {number}, and how far is it from the sea?"
    for number in range(16)
]


class Skipped(Exception):  # noqa: N818 - no error
    """A check that cannot run here; the text says why."""


@dataclass
class Bench:
    """The folder of a run, the machine, and what checks leave for later ones."""

    folder: Path
    gpu: str | None
    device: str = "cpu"
    made: dict = field(default_factory=dict)

    def run(self, part, **job):
        """Run a part in a process of its own; its result."""
        number = len(list(self.folder.glob("*.job.json")))
        file, log = self.folder / f"{number}-{part}.job.json", self.folder / f"{number}-{part}.log"
        file.write_text(json.dumps(job))
        with log.open("w") as output:
            command = [sys.executable, "-m", "tests.gpu.parts", part, str(file)]
            done = subprocess.run(command, cwd=REPOSITORY, stdout=output, stderr=output, timeout=LIMIT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{_last_words(log)} ({log})")
        return json.loads(file.with_suffix(".result.json").read_text())

    def need(self, *packages, programs=(), gpu=False):
        """Skip unless all of it is here."""
        if gpu and self.device != "cuda":
            raise Skipped("no GPU that torch sees" if self.gpu else "no GPU")
        absent = [name for name in packages if importlib.util.find_spec(name) is None]
        absent += [name for name in programs if shutil.which(name) is None]
        if absent:
            raise Skipped(f"not installed: {', '.join(absent)}")


def graphics(bench):
    if bench.gpu is None:
        raise Skipped("nvidia-smi is not here or lists no GPU")
    return bench.gpu


def imported(name):
    def check(bench):
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            raise Skipped("not installed")
        statement = (
            f"import importlib; m = importlib.import_module({name!r}); print(getattr(m, '__version__', 'imported'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", statement], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
        return done.stdout.strip().splitlines()[-1]

    return check


def torch_sees_it(bench):
    bench.need("torch")
    statement = "import torch; print(torch.cuda.is_available(), torch.__version__, torch.cuda.device_count())"
    done = subprocess.run(
        [sys.executable, "-c", statement], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    available, version, count = (done.stdout.split() or ["False", "unknown", "0"])[-3:]
    if available == "True":
        bench.device = "cuda"
        return f"torch {version}, {count} GPUs"
    if bench.gpu:
        raise RuntimeError(
            f"torch {version} sees no GPU, nvidia-smi does; run with GPU_PYTHON, a Python whose torch has CUDA"
        )
    raise Skipped(f"torch {version} on CPU: no GPU")


def a_source(bench):
    bench.need("torch", "safetensors")
    folder, dtype = bench.folder / "source", "bfloat16" if bench.device == "cuda" else "float32"
    bench.made |= {"none": str(folder), "control": f"{folder}-control"}
    if folder.exists():
        return "made by an earlier run in this folder"
    bench.run("source", folder=str(folder), dtype=dtype)
    return f"a random Llama in {dtype}: theta 500000, llama3 scaling, biases, tied weights"


def quantized(format_):
    def check(bench):
        out = str(bench.folder / format_)
        if Path(out, "config.json").exists():
            bench.made[format_] = out
            return "made by an earlier run in this folder"
        bench.need("torch", "modelopt", "transformers", *OWN, gpu=format_ == "nvfp4")
        shutil.rmtree(out, ignore_errors=True)  # half of one that failed
        found = bench.run(
            "quantize", folder=_made(bench, "none"), out=out, quantization=format_, device=bench.device, texts=TEXTS
        )
        bench.made[format_] = out
        return f"{found['weights_bytes']} of {found['source_bytes']} bytes, read back as {found['quantization']['quant_algo']}"

    return check


def reference(bench):
    """Tokens of the source by transformers, and proof that losing its positions changes them."""
    bench.need("torch", "transformers", *OWN)
    folders = {"none": _made(bench, "none"), "control": _made(bench, "control")}
    asked = {"prompts": prompts(), "tokens": ANSWER_TOKENS, "device": bench.device}
    answers = bench.run("generate_transformers", folders=folders, **asked)
    lost = agreement(answers["none"], answers["control"])
    if lost >= min(AGREE.values()):
        raise RuntimeError(
            f"without its positions the model still agrees in {lost:.0%}: nothing below would be noticed"
        )
    bench.made["tokens"] = answers["none"]
    return f"{PROMPTS} prompts of {PROMPT_TOKENS} tokens; without its positions the model agrees in {lost:.0%}"


def dequantized(format_):
    def check(bench):
        bench.need("torch", "transformers", *OWN)
        if format_ == "nvfp4":
            raise Skipped("its blocks are read by servers alone")
        folder = _made(bench, format_)
        asked = {"prompts": prompts(), "tokens": ANSWER_TOKENS, "device": bench.device, "quantized": True}
        found = bench.run("generate_transformers", folders={format_: folder}, **asked)
        return _compared(bench, found[format_], format_)

    return check


def generated(runtime, format_):
    def check(bench):
        bench.need(runtime, gpu=True)
        if runtime == "vllm" and format_ != "none" and (table_of("vllm", version("vllm")) or {}).get("untied"):
            raise Skipped(f"vLLM {version('vllm')} cannot load what ModelOpt writes of tied weights; plan refuses it")
        folder = _made(bench, format_)
        found = bench.run(f"generate_{runtime}", folder=folder, prompts=prompts(), tokens=ANSWER_TOKENS)
        return _compared(bench, found["tokens"], format_)

    return check


def built(format_):
    def check(bench):
        bench.need("tensorrt_llm", *OWN, programs=("trtllm-build",), gpu=True)
        if not any(folder.is_dir() for folder in EXAMPLES):
            raise Skipped(f"TensorRT-LLM's example scripts are in none of {', '.join(map(str, EXAMPLES))}")
        out = str(bench.folder / f"engine-{format_}")
        found = bench.run("build", folder=_made(bench, "none"), out=out, quantization=format_, texts=TEXTS)
        bench.made[f"engine {format_}"] = found["engine"]
        return f"read back: {json.dumps(found['description']['limits'])}"

    return check


def served(kind, made):
    def check(bench):
        bench.need(*SERVING, "vllm" if kind == "vllm" else "tensorrt_llm", programs=("tritonserver",), gpu=True)
        out = bench.folder / f"served-{kind}"
        shutil.rmtree(out, ignore_errors=True)
        found = bench.run("serve", kind=kind, engine_dir=_made(bench, made), out=str(out))
        return f"ready after {found['ready_s']} s, answered {found['answer']!r}"

    return check


CHECKS = {
    "GPU": graphics,
    **{f"import {name}": imported(name) for name in IMPORTS},
    "torch sees the GPU": torch_sees_it,
    "source": a_source,
    "source generates": reference,
    **{f"quantize {name}": quantized(name) for name in ("fp8", "int4_awq", "nvfp4")},
    **{f"{name} generates, dequantized": dequantized(name) for name in ("fp8", "int4_awq", "nvfp4")},
    **{f"{name} by TensorRT-LLM": generated("tensorrt_llm", name) for name in ("none", "fp8", "int4_awq", "nvfp4")},
    **{f"{name} by vLLM": generated("vllm", name) for name in ("none", "fp8", "nvfp4")},
    **{f"trt-engine {name}": built(name) for name in ("none", "fp8")},
    "Triton with trt-engine": served("trt-engine", "engine none"),
    "Triton with llmapi": served("llmapi", "none"),
    "Triton with vllm": served("vllm", "none"),
}
"""By the name that a report has for each."""


def line_of(name, check, bench):
    """Run one check; no error of it ends the others."""
    began = time.monotonic()
    try:
        status, detail = PASSED, check(bench)
    except Skipped as reason:
        status, detail = SKIPPED, str(reason)
    except Exception as error:  # noqa: BLE001 - whatever a toolkit raises is this line's result
        status, detail = FAILED, " ".join(str(error).split())[:400] or type(error).__name__
    return Line(name, status, detail, time.monotonic() - began)


def prompts():
    """Longer than the positions that the source was scaled from; tokens that are no special ones."""
    chosen = random.Random(11)  # noqa: S311 - the same on every machine
    return [[0, *(chosen.randrange(5, 768) for _ in range(PROMPT_TOKENS - 1))] for _ in range(PROMPTS)]


def agreement(expected, found):
    """Share of prompts that both answer with the same first token."""
    return sum(ours[:1] == theirs[:1] for ours, theirs in zip(expected, found, strict=True)) / len(expected)


def _compared(bench, found, format_):
    if "tokens" not in bench.made:
        raise Skipped("the source did not generate")
    share = agreement(bench.made["tokens"], found)
    if share < AGREE[format_]:
        raise RuntimeError(
            f"agrees with the source in {share:.0%} of first tokens, expected {AGREE[format_]:.0%} or more"
        )
    return f"agrees with the source in {share:.0%} of first tokens"


def _made(bench, name):
    if name not in bench.made:
        raise Skipped(f"there is no {name}: see above")
    return bench.made[name]


def _last_words(log):
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output"
