"""What a step needs according to the spec alone: a pod shape, and possibly GPUs. resolution.py adds the site."""

from typing import Literal

from tasks.contracts.site.site import Gpu
from tasks.contracts.spec.spec import ReleaseSpec
from tasks.contracts.steps import Step

ShapeName = Literal["small", "transfer", "compute", "serving", "gpu"]
STEP_SHAPES: dict[Step, ShapeName] = {
    "download": "transfer",
    "quantize": "compute",
    "build": "compute",
    "assemble": "serving",
    "publish": "transfer",
    "evaluate": "transfer",
}
"""Shapes of steps that use no GPU; steps that are absent are `small`."""

HELD = 0.85
"""Share of a GPU's memory that weights may take while they are quantized. The rest is an allowance for CUDA,
a text's activations and logits, and the gaps that whole layers leave."""


def needs_gpu(step: Step, spec: ReleaseSpec) -> bool:
    """Whether the step's pod has GPUs.

    A compiled engine is made and booted on them. For the other GPU engines nothing is built, and weights that keep
    their format pass through quantize as files.
    """
    if spec.engine.gpu is None:
        return False
    if step == "quantize":
        return spec.engine.traits.compiled or spec.changes_weights
    return step == "assemble" or (step == "build" and spec.engine.traits.compiled)


def step_shape(step: Step, spec: ReleaseSpec) -> ShapeName:
    """Which of the site's shapes the step's pod has."""
    return "gpu" if needs_gpu(step, spec) else STEP_SHAPES.get(step, "small")


def gpus_to_hold(weights_bytes: int, gpu: Gpu) -> int:
    """How many GPUs hold the weights during quantization: the toolkits spread whole layers over all that they see.

    TensorRT-LLM's quantize.py and ModelOpt's step load with `device_map` auto. What does not fit goes to
    the host's memory, which the pod does not have for it.
    """
    return -(-weights_bytes // int(gpu.memory_gib * HELD * 2**30))
