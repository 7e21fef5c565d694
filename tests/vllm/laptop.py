"""The laptop's stack with one more image, of vLLM or of what stands in for it, and a node that says it has GPUs."""

import yaml

from tests.local.chain.whole_chain import SPEC
from tests.support.paths import REPOSITORY

IMAGE = f"slipway/tasks-gpu:0.1.0-26.08-vllm@sha256:{'0' * 64}"
PRODUCT = "NVIDIA-L4"
READY_S = 3600
"""vLLM imports all of torch twice before it loads anything: a minute on an idle machine, ten where the load is 40."""
LIVE_AND_CANDIDATE = 2
GATE = ("smoke_accuracy", "answer_accuracy", "error_rate")
"""Lines of the demo's gate that do not depend on how fast the machine is, or on the weights that openvino quantizes."""
CANARY = {"strategy": "canary", "steps": [50], "bake_s": 10, "canary": {"min_requests": 5, "slowdown": 20}, "keep": 2}


def options(folder, environment):
    """Write the stack's documents; return the options of `python -m local up`. `environment` is that of vLLM's image."""
    specs = folder / "specs"
    specs.mkdir(parents=True)
    _write(specs / "demo.yaml", spec())
    # ends are reported late, as by a kubelet without EventedPLEG
    late = "--cluster-option=--notice-s=1"
    return "--specs", str(specs), late, *options_of_a_gpu_node(folder, environment, gpus=LIVE_AND_CANDIDATE)


def options_of_a_gpu_node(folder, environment, *, gpus, **image):
    """Write the site and the table of images; return the options for both, and for the node.

    `environment` is that of vLLM's image, and `image` replaces fields of it.
    """
    _write(folder / "images.yaml", _images(environment, image))
    _write(folder / "site.yaml", _site())
    node = (f"--device=nvidia.com/gpu={gpus}", f"--label=nvidia.com/gpu.product={PRODUCT}")
    documents = ("--images", str(folder / "images.yaml"), "--site", str(folder / "site.yaml"))
    return *documents, *(f"--cluster-option={each}" for each in node)


def spec():
    """The demo's, of kind vllm."""
    gate = {**SPEC["gate"], "quality": {"dataset": SPEC["gate"]["quality"]["dataset"]}}
    return {
        **SPEC,
        "quantization": {"format": "none"},
        "engine": {
            "kind": "vllm",
            "gpu": PRODUCT,
            "max_batch_size": 8,
            "max_input_tokens": 128,
            "max_sequence_tokens": 192,
            "options": {"enforce_eager": True},
        },
        "serving": {"exposure": "ingress", "ready_timeout_s": READY_S},
        "gate": gate
        | {
            "benchmark": {"concurrency": [1, 4], "requests": 16, "warmup": 2},
            "expect": [line for line in gate["expect"] if line["metric"] in GATE],
        },
        "rollout": CANARY,
    }


def _site():
    site = yaml.safe_load((REPOSITORY / "sites" / "local.yaml").read_text())
    site["images"]["serving"]["vllm"] = IMAGE
    site["shapes"]["gpu"] = {"cpu": "2", "memory": "8Gi", "scratch": "8Gi", "gpus": 1}
    site["gpus"] = {PRODUCT: {"memory_gib": 22.5, "per_node": 1, "architecture": "sm_89"}}
    return site


def _images(environment, image):
    images = yaml.safe_load((REPOSITORY / "local" / "images.yaml").read_text())
    # the folder of temporary files lies too deep here for the socket that vLLM makes in it
    own = {"PYTHONPATH": "${REPO}", "VLLM_RPC_BASE_PATH": "/dev/shm", **environment}
    images["images"][IMAGE] = {"path_prefix": ["${ENVS}/vllm/bin"], "env": own, **image}
    return images


def _write(file, document):
    file.write_text(yaml.safe_dump(document, sort_keys=False))
