"""A release of a family's checkpoint from plan to an answer."""

from types import SimpleNamespace

from generation.runtime import Sampling
from openvino_runtime import load

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.workspace import Workspace
from slipway.tasks.contracts.stored.plan import PlanRequest
from slipway.tasks.contracts.stored.release import Release
from slipway.tasks.steps import assemble, build, download, plan, quantize
from tests.fakes.hub import MemoryHub
from tests.fakes.releases import spec
from tests.fakes.store.object_store import MemoryObjectStore
from tests.fakes.workspace import site
from tests.support.paths import REPOSITORY

REPO = "org/model"
ENGINE = {"kind": "openvino", "max_batch_size": 2, "max_input_tokens": 128, "max_sequence_tokens": 192}
QUESTION = {"prompt": "Which of these letters comes first?", "answer": ".", "match": "regex", "max_tokens": 24}
"""Prompt and answer are both longer than a sliding window of these checkpoints."""
TEXTS = [{"text": "The quick brown fox jumps over the lazy dog, and then it sleeps."}]
DATASET = "hf://datasets/org/texts@main/perplexity.jsonl"


def spec_of(weights):
    """A release of a checkpoint in a format."""
    return spec(
        source={"repo": REPO},
        quantization={"format": weights},
        engine=ENGINE,
        gate={
            "smoke": [QUESTION],
            "quality": {"dataset": DATASET, "perplexity": DATASET},
            "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}],
        },
    )


def planned(checkpoint, spec, folder):
    """What plan stores for a release of the checkpoint, and the workspaces of later steps."""
    files = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    hub, store = MemoryHub({REPO: {"main": files}}, {DATASET: TEXTS}), MemoryObjectStore()

    def workspace(step):
        scratch = folder / step
        scratch.mkdir(parents=True)
        return Workspace(site(), store, SystemClock(), scratch, REPOSITORY, lambda: hub)

    outcome = plan.run(PlanRequest(spec=spec, run="run-1"), workspace("plan"))
    return Release.model_validate_json(store.read_bytes(outcome.data["release"])), workspace


def released(checkpoint, spec, folder, *, booted):
    """Results of the steps up to build, or to assemble, which boots Triton; each in a workspace of its own. Besides them the
    folders of what quantize and build made."""
    release, workspace = planned(checkpoint, spec, folder)
    made = {"release": release}
    for step in (download, quantize, build, *((assemble,) if booted else ())):
        name = step.__name__.rpartition(".")[2]
        made[name] = step.run(release, workspace(name)).data
    return SimpleNamespace(**made, quantized=folder / "quantize" / "quantized", engine=folder / "build" / "engine")


def generated(engine, description, prompt, max_tokens):
    """Tokens of the engine's greedy answer, by what serves it in Triton."""
    runtime = load(engine, description["scheduler"], description["properties"], scores_prompts=False)
    runtime.add(1, prompt, Sampling(max_tokens=max_tokens))
    tokens = []
    while runtime.has_work():
        tokens += [token for progress in runtime.step() for token in progress.tokens]
    return tokens
