"""The real vLLM on CPU behind the real Triton, with the repository that the vllm maker's template renders."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save_file

from slipway.tasks.serving.rendered.repository import render
from tests.fixtures.adapters import adapter_config
from tests.local.serving.openai_server import OpenAiServer
from tests.local.serving.triton_server import TritonServer
from tests.support.paths import ENVIRONMENTS, HUB, REPOSITORY

ENVIRONMENT = ENVIRONMENTS / "vllm"
CHECKPOINT = HUB / "slipway" / "demo-llama" / "v1"
CACHE = REPOSITORY / ".slipway" / "cache" / "vllm"
"""Where vLLM keeps what it found out about model classes, which costs it a process with all of its imports."""
READY_S = 900
ON_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CACHE_ROOT": str(CACHE),
    # else log-probabilities are compiled by torch at the first request that asks for them, for minutes
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
LIMITS = {"max_batch_size": 8, "max_input_tokens": 128, "max_sequence_tokens": 200}
RANK = 8


def values(repository):
    """What the maker gives the template for an adapted release on one GPU, with the computation of the demo's gate."""
    options = {
        "enforce_eager": True,
        "trust_remote_code": False,
        "max_num_batched_tokens": 512,
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 4,
        "max_lora_rank": RANK,
    }
    return {
        "name": "demo",
        "engine_folder": "engine",
        "chat_template": "apply",
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "kv_cache_fraction": 0.5,
        "kv_cache": "auto",
        "gpus": [],
        "loras": {"odd": "lora/odd"},
        "speculation": {},
        "options": options,
        **LIMITS,
    }


def write_adapter(folder, rank=RANK, *, seed=RANK):
    """An adapter as PEFT saves it, with which the model says something else."""
    config = json.loads((CHECKPOINT / "config.json").read_text())
    hidden, random = config["hidden_size"], np.random.default_rng(seed)
    before = "base_model.model.model.layers.{}.self_attn.q_proj"
    tensors = {}
    for number in range(config["num_hidden_layers"]):
        for part, shape in (("lora_A", (rank, hidden)), ("lora_B", (hidden, rank))):
            tensors[f"{before.format(number)}.{part}.weight"] = random.normal(size=shape).astype(np.float32)
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(adapter_config(rank, ["q_proj"])))
    save_file(tensors, folder / "adapter_model.safetensors")


@pytest.fixture(scope="session")
def live_adapters(tmp_path_factory):
    """The folder in which a serving pod has the adapters that were added to its release."""
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="session")
def server(live_adapters, tmp_path_factory):
    repository, folder = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("triton")
    render(REPOSITORY / "model_repository_templates", "vllm", values(repository), repository)
    shutil.copytree(CHECKPOINT, repository / "demo" / "1" / "engine")
    write_adapter(repository / "demo" / "1" / "engine" / "lora" / "odd")
    environment = {**ON_CPU, "HOME": str(folder), "SLIPWAY_ADAPTERS": str(live_adapters)}
    launcher = ENVIRONMENT / "bin" / "tritonserver"
    with TritonServer(
        repository, folder, environment=environment, metrics=True, launcher=launcher, ready_s=READY_S
    ) as running:
        yield running


@pytest.fixture(scope="session")
def api(server, tmp_path_factory):
    with OpenAiServer(server, tmp_path_factory.mktemp("api")) as running:
        yield running
