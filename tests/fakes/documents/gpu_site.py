"""A site with GPUs that no change of the project's own sites reaches: goldens stand on it."""

from slipway.tasks.contracts.site.site import Site
from tests.fakes.workspace import site

MULTINODE = "example.com/slipway/triton-multinode:1"
SERVING = "example.com/slipway/tasks-gpu:1"
GPUS = {
    "NVIDIA-L4": {"memory_gib": 22.5, "per_node": 1, "architecture": "sm_89"},
    "NVIDIA-A10G": {"memory_gib": 22.5, "per_node": 4, "architecture": "sm_86"},
}
SHAPE = {"cpu": "8", "memory": "64Gi", "scratch": "500Gi"}


def gpu_site(*, multinode=MULTINODE, **changes) -> Site:
    """One or four GPUs on a node, cloud identities in place of keys, and images for every engine."""
    images = {
        "tasks": "example.com/slipway/tasks-cpu:1",
        "serving": {"openvino": "example.com/slipway/triton-cpu:1", "trt-engine": SERVING, "llmapi": SERVING}
        | {"vllm": "example.com/slipway/tasks-gpu-vllm:1"},
        "multinode": multinode,
    }
    tolerations = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    shapes = dict.fromkeys(("small", "transfer", "compute", "serving"), SHAPE)
    shapes["gpu"] = {**SHAPE, "gpus": 1, "tolerations": tolerations}
    return site(**{"name": "gpus", "images": images, "shapes": shapes, "gpus": GPUS, **changes})
