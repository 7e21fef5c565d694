"""Releases on a site with one GPU product of each architecture, judged as plan does before a weight is downloaded."""

from slipway.tasks.contracts.fit.resolution import resolve
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.preflight.sources import documents_of
from slipway.tasks.engines.registry import planner_for
from tests.contracts.recorded import contract
from tests.fakes.documents.eks_site import eks
from tests.fakes.hubs.public_hub import PublicHub
from tests.fakes.releases import SPEC

REPO = "Qwen/Qwen2.5-7B-Instruct"
"""Its dimensions stand in for those of every model here."""
CALIBRATION = {"dataset": "hf://datasets/org/texts@main/a.jsonl"}
GPUS = {
    "Tesla-T4": ("sm_75", 15.0),
    "NVIDIA-A10G": ("sm_86", 22.5),
    "NVIDIA-L4": ("sm_89", 22.5),
    "NVIDIA-H100": ("sm_90", 79.6),
    "NVIDIA-B200": ("sm_100", 179.0),
    "NVIDIA-RTX-PRO-6000": ("sm_120", 95.6),
    "NVIDIA-GB10": ("sm_121", 119.0),
}
CLASSES = contract("causal_models.yaml")["classes"]
SITE = Site.model_validate(
    eks()
    | {
        "gpus": {
            name: {"memory_gib": memory, "per_node": 8, "architecture": architecture, "driver": "580.95.05"}
            for name, (architecture, memory) in GPUS.items()
        }
    }
)
WITHOUT_MODELOPT = SITE.model_copy(update={"images": SITE.images.model_copy(update={"modelopt": None})})


def asked(kind, format_="none", kv_cache="none", gpu="NVIDIA-H100", **engine):
    limits = {"max_batch_size": 1, "max_input_tokens": 512, "max_sequence_tokens": 1024}
    spec = {
        **SPEC,
        "source": {"repo": REPO},
        "quantization": {"format": format_, "kv_cache": kv_cache},
        "engine": {"kind": kind, "gpu": gpu, **limits, **engine},
    }
    read = ReleaseSpec.model_validate(spec)
    if read.quantization.reads_texts(read.engine.traits):
        spec["quantization"]["calibration"] = CALIBRATION
    return ReleaseSpec.model_validate(spec)


def plan(spec, site=SITE, **config):
    """Judge the spec for the model with these fields of config.json changed; the planner's warnings."""
    hub = PublicHub(**config)
    source = hub.resolve(REPO, "main")
    documents = documents_of(source, spec.engine.traits.reads_at_plan, hub)
    release = resolve(spec, site)
    planner = planner_for(spec.engine.kind)
    planner.check(release, source, documents)
    return planner.warnings(release, source, documents)


def of_class(architecture):
    """Fields of config.json by which a model is of this class."""
    return {"architectures": [architecture], "model_type": next(t for t, c in CLASSES.items() if c == architecture)}
