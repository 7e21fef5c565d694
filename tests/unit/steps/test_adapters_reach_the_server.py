"""A model with adapters, taken through the steps as they are: from the Hub to the repository that a server reads."""

import json

import pytest
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.engines.registry import maker_for
from slipway.tasks.serving.rendered.repository import render
from slipway.tasks.steps import build, download, plan, quantize
from tests.contracts.recorded import check_document, contract
from tests.fakes.clock import ManualClock
from tests.fakes.documents.eks_site import eks
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import SPEC, spec
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fixtures.adapters import ATTENTION, SIZES, TINY, adapter_files
from tests.support.paths import REPOSITORY
from tests.support.yaml_documents import load_yaml

LORA = [{"name": "polite", "repo": "org/polite"}, {"name": "terse", "repo": "org/terse"}]


def model():
    import numpy as np
    from safetensors.numpy import save

    sizes = {
        f"model.layers.{number}.self_attn.{layer}.weight": SIZES[layer] for number in (0, 1) for layer in ATTENTION
    }
    weights = {name: np.ones((outputs, inputs), dtype=np.float16) for name, (inputs, outputs) in sizes.items()}
    return {"config.json": json.dumps(TINY).encode(), "tokenizer.json": b"{}", "model.safetensors": save(weights)}


@pytest.fixture
def workspaces(tmp_path):
    """New workspaces, as each step's pod has one, over one Hub and object store."""

    def over(**adapters):
        models = {"slipway/demo-llama": {"v1": model()}}
        hub = MemoryHub(models | {f"org/{name}": {"main": each} for name, each in adapters.items()})
        store, site = MemoryObjectStore(), Site.model_validate(eks())

        def new(step):
            scratch = tmp_path / step
            scratch.mkdir()
            return Workspace(site, store, ManualClock(), scratch, REPOSITORY, lambda: hub, lambda _: 2**45)

        return new

    return over


def made(workspace, tmp_path, kind):
    """The engine and the repository that a release of the kind is served from."""
    asked = spec(
        engine={**SPEC["engine"], "kind": kind, "gpu": "NVIDIA-A10G", "lora": LORA},
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
    render(space.templates, kind, maker_for(kind).template_values(engine, release.spec), repository)
    return engine, repository / "demo"


def test_vllm_finds_every_adapter_where_the_engine_lies_and_has_room_for_it(workspaces, tmp_path):
    adapters = {"polite": adapter_files(8), "terse": adapter_files(20)}
    engine, repository = made(workspaces(**adapters), tmp_path, "vllm")

    config = text_format.Parse((repository / "config.pbtxt").read_text(), ModelConfig())
    listed = json.loads(config.parameters["adapters"].string_value)
    arguments = json.loads((repository / "1" / "model.json").read_text())
    assert list(listed) == ["polite", "terse"]
    for name, rank in (("polite", 8), ("terse", 20)):
        folder = engine / listed[name]
        assert json.loads((folder / "adapter_config.json").read_text())["r"] == rank
        assert (folder / "adapter_model.safetensors").read_bytes() == adapters[name]["adapter_model.safetensors"]
    check_document(arguments, contract("vllm_engine_arguments.yaml"))
    assert (arguments["enable_lora"], arguments["max_loras"], arguments["max_lora_rank"]) == (True, 2, 32)


def test_the_llm_api_finds_every_adapter_below_its_engine_and_serves_what_both_change(workspaces, tmp_path):
    adapters = {"polite": adapter_files(8), "terse": adapter_files(16, ATTENTION)}
    engine, repository = made(workspaces(**adapters), tmp_path, "llmapi")

    parameters = text_format.Parse((repository / "config.pbtxt").read_text(), ModelConfig()).parameters
    arguments = load_yaml((repository / "1" / "model.yaml").read_text())
    for name, folder in json.loads(parameters["adapters"].string_value).items():
        for file, content in adapters[name].items():
            assert (engine / folder / file).read_bytes() == content
    check_document(arguments, contract("llm_arguments.yaml"))
    assert arguments["lora_config"] == {
        "lora_target_modules": ["attn_q", "attn_k", "attn_v", "attn_dense"],
        "max_lora_rank": 16,
        "max_loras": 2,
        "max_cpu_loras": 2,
    }
