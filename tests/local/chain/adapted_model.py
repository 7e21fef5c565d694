"""The stack's first model, and the repository that its LoRA adapters come from.

Its kind is vllm, and vllm_stand_in computes in vLLM's place, adapters included. The Hub gives it to holders of a token
alone, and lm-evaluation-harness scores it.
"""

import json
import shutil

import numpy as np
import yaml
from safetensors.numpy import save_file

from tests.fixtures.adapters import adapter_config
from tests.local.chain import hub_token
from tests.support.paths import HUB, REPOSITORY
from tests.vllm import laptop

NAME, REPO = "adapted", "slipway/demo-adapter"
DAG = f"release__{NAME}"
LOAD = {
    "concurrency": [1],
    "request_rate": [10],
    "requests": 4,
    "warmup": 1,
    "prompts": {"input_tokens": 12, "input_tokens_stddev": 2, "output_tokens": 8},
}
QUESTIONS = 30
TASK = {
    "task": "our-questions",
    "questions": "hf://datasets/slipway/demo-questions@main/eval.jsonl",
    "samples": QUESTIONS,
    "max_tokens": 32,
    "at_least": 0.9,
}
REPLICAS, RANK = 2, 2
STRENGTHS = {"v1": 0.0, "odd": 4.0}
"""How strong the adapter of each revision is: at 0 it changes nothing."""
CONFIG = json.loads((HUB / "slipway" / "demo-llama" / "v1" / "config.json").read_text())
STAND_IN = REPOSITORY / "tests" / "local" / "chain" / "vllm_stand_in"


def document():
    """The spec: room for two adapters in two pods, and a gate with a little of everything."""
    of_vllm = laptop.spec()
    changes = {
        "name": NAME,
        "source": hub_token.SOURCE,
        "engine": of_vllm["engine"] | {"options": {"enforce_eager": True, "max_loras": 2, "max_lora_rank": 8}},
        "serving": {"replicas": {"min": REPLICAS, "max": REPLICAS}, "ready_timeout_s": laptop.READY_S},
        "gate": {
            "smoke": of_vllm["gate"]["smoke"],
            "benchmark": LOAD,
            "harness": {"concurrency": 2, "tasks": [TASK]},
            "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}, {"metric": "error_rate", "at_most": 0.0}],
        },
        "rollout": {"strategy": "blue-green", "keep": 2},
    }
    return of_vllm | changes


def stack_options(folder):
    """Write the site and the table of images; return the options of a stack whose node has GPUs for the model."""
    folder.mkdir()
    # Python within Triton's stub ignores PYTHONPATH, and looks into the folder in which the server was started
    image = {"path_prefix": ["${ENVS}/triton/bin"], "working_dir": str(STAND_IN)}
    return laptop.options_of_a_gpu_node(folder, {"OPENBLAS_NUM_THREADS": "1"}, gpus=2 * REPLICAS, **image)


def write_fixtures(folder):
    """What the stack's Hub serves: the tests' models, and a repository of adapters besides."""
    shutil.copytree(HUB, folder, symlinks=True)
    repository = folder / REPO
    for revision, strength in STRENGTHS.items():
        _write_adapter(repository / revision, strength)
    declared = {
        "refs": {"branches": {"main": "v1"}, "tags": {name: name for name in STRENGTHS}},
        "revisions": [{"name": name, "files": name} for name in STRENGTHS],
    }
    (repository / "repository.yaml").write_text(yaml.safe_dump(declared))


def _write_adapter(folder, strength):
    """An adapter as PEFT saves it."""
    random, hidden = np.random.default_rng(RANK), CONFIG["hidden_size"]
    tensors = {}
    for number in range(CONFIG["num_hidden_layers"]):
        layer = f"base_model.model.model.layers.{number}.self_attn.q_proj"
        tensors[f"{layer}.lora_A.weight"] = random.normal(size=(RANK, hidden)).astype(np.float32)
        tensors[f"{layer}.lora_B.weight"] = (strength * random.normal(size=(hidden, RANK))).astype(np.float32)
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config(RANK, ["q_proj"])))
    save_file(tensors, folder / "adapter_model.safetensors")
