"""What a step needs according to the spec alone: a pod shape, and possibly GPUs. resolution.py adds the site."""

from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.site.site import Gpu
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.step_names import Step

HELD = 0.85
"""Share of a GPU's memory that weights may take while they are quantized. The rest is an allowance for CUDA,
a text's activations and logits, and the gaps that whole layers leave."""


def needs_gpu(step: Step, spec: ReleaseSpec) -> bool:
    """Whether the step's pod has GPUs."""
    return STEP_KINDS[step].needs_gpu(spec)


def step_shape(step: Step, spec: ReleaseSpec) -> str:
    """Which of the site's shapes the step's pod has. What boots the server has that of the server."""
    if needs_gpu(step, spec):
        return "gpu"
    own = spec.serving.shape if STEP_KINDS[step].shape == "serving" else None
    return own or STEP_KINDS[step].shape


def gpus_to_hold(weights_bytes: int, gpu: Gpu) -> int:
    """How many GPUs hold the weights during quantization: the toolkits spread whole layers over all that they see.

    TensorRT-LLM's quantize.py and ModelOpt's step load with `device_map` auto. What does not fit goes to
    the host's memory, which the pod does not have for it.
    """
    return -(-weights_bytes // int(gpu.memory_gib * HELD * 2**30))
