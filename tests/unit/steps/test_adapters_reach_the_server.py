"""A model with adapters, taken through the steps as they are: from the Hub to the repository that a server reads."""

import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tasks.adapters.workspace import Workspace
from tasks.contracts.plan import PlanRequest
from tasks.contracts.release import Release
from tasks.contracts.site import Site
from tasks.engines.registry import maker_for
from tasks.serving.repository import render
from tasks.steps import build, download, plan, quantize
from tests.contracts.recorded import check_document, contract
from tests.fakes.clock import ManualClock
from tests.fakes.eks_site import eks
from tests.fakes.hub import MemoryHub
from tests.fakes.object_store import MemoryObjectStore
from tests.fakes.releases import SPEC, spec

ROOT = Path(__file__).parents[3]
SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 16,
    "max_position_embeddings": 256,
}
LORA = [{"name": "polite", "repo": "org/polite"}, {"name": "terse", "repo": "org/terse"}]


def tensors(*shape):
    import numpy as np
    from safetensors.numpy import save

    return save({"weight": np.ones(shape, dtype=np.float16)})


def adapter(rank):
    config = {"peft_type": "LORA", "r": rank, "base_model_name_or_path": "slipway/demo-llama"}
    return {"adapter_config.json": json.dumps(config).encode(), "adapter_model.safetensors": tensors(rank, 8)}


@pytest.fixture
def workspace(tmp_path):
    """A new workspace, as each step's pod has one, over the same Hub and object store."""
    model = {"config.json": json.dumps(SHAPE).encode(), "tokenizer.json": b"{}", "model.safetensors": tensors(16, 8)}
    adapters = {"org/polite": {"main": adapter(8)}, "org/terse": {"main": adapter(20)}}
    hub, store = MemoryHub({"slipway/demo-llama": {"v1": model}, **adapters}), MemoryObjectStore()
    site = Site.model_validate(eks())

    def new(step):
        scratch = tmp_path / step
        scratch.mkdir()
        return Workspace(site, store, ManualClock(), scratch, ROOT, lambda: hub, lambda _: 2**45)

    return new


def test_the_server_finds_every_adapter_where_the_engine_lies_and_has_room_for_it(workspace, tmp_path):
    asked = spec(
        engine={**SPEC["engine"], "kind": "vllm", "gpu": "NVIDIA-A10G", "lora": LORA},
        quantization={"format": "none"},
        gate={**SPEC["gate"], "smoke": [{"prompt": "?", "answer": "!", "lora": "terse"}]},
    )
    space = workspace("plan")
    planned = plan.run(PlanRequest(spec=asked, run="run-1"), space)
    release = Release.model_validate_json(space.store.read_bytes(planned.data["release"]))
    for name, step in (("download", download), ("quantize", quantize), ("build", build)):
        step.run(release, workspace(name))
    engine, repository = tmp_path / "built", tmp_path / "repository"
    repository.mkdir()
    space.artifacts.fetch("build", release.plan.stages["build"].key, engine)

    render(space.templates, "vllm", maker_for("vllm").template_values(engine, release.spec), repository)

    version = repository / "demo" / "1"
    listed = json.loads((version / "multi_lora.json").read_text())
    arguments = json.loads((version / "model.json").read_text())
    assert text_format.Parse((repository / "demo" / "config.pbtxt").read_text(), ModelConfig()).backend == "vllm"
    assert list(listed) == ["polite", "terse"]
    for name, rank in (("polite", 8), ("terse", 20)):
        folder = engine / Path(listed[name]).relative_to("/models/repository/demo/1/engine")
        assert json.loads((folder / "adapter_config.json").read_text())["r"] == rank
        assert (folder / "adapter_model.safetensors").read_bytes() == tensors(rank, 8)
    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert (arguments["enable_lora"], arguments["max_loras"], arguments["max_lora_rank"]) == (True, 2, 32)
