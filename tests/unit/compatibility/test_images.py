"""What an image holds by its tag, which engines it serves, and on which drivers."""

import pytest

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, TRT_ENGINE, kinds_with
from slipway.tasks.contracts.site.site import Gpu
from slipway.tasks.contracts.site.triton_images import STATED_IMAGES, check_driver, triton_image
from slipway.tasks.engines.trtllm.maker import TENSORRT_LLM
from tests.support.refused import refused

NVIDIA = "nvcr.io/nvidia/tritonserver"


@pytest.mark.parametrize(
    ("image", "kind", "runtime"),
    [
        (f"{NVIDIA}:26.07-trtllm-python-py3", "trt-engine", "1.2.1"),
        (f"{NVIDIA}:26.04-vllm-python-py3@sha256:{'a' * 64}", "vllm", "0.19.0"),
        ("registry:5000/slipway/tasks-gpu:0.1.0-26.05", "llmapi", "1.2.1"),
    ],
)
def test_the_tag_names_the_release_and_the_table_what_it_holds(image, kind, runtime):
    assert triton_image(image, kind).runtime == runtime


TRTLLM = "nvcr.io/nvidia/tensorrt-llm/release"
MIGRATE = "slipway migrate --to vllm"


@pytest.mark.parametrize(
    ("image", "kind", "fields"),
    [
        (
            "slipway/tasks-gpu:0.1.0",
            "trt-engine",
            {"what": "names no Triton release", "expected": "26.04, 26.05", "remedy": "0.1.0-26.07"},
        ),
        ("slipway/tasks-gpu", "vllm", {"what": "names no Triton release"}),
        (
            f"{NVIDIA}:26.02-trtllm-python-py3",
            "trt-engine",
            {"found": "Triton 26.02, which contains trtllm 1.1.0", "expected": "Triton 26.04"},
        ),
        (f"{NVIDIA}:26.10-trtllm-python-py3", "trt-engine", {"found": "26.10, which is not in", "remedy": MIGRATE}),
        (f"{TRTLLM}:1.3.0rc22", "trt-engine", {"found": "1.3.0rc22 (no engines since", "expected": "1.2.1"}),
        (
            f"{TRTLLM}:0.21.0",
            "trt-engine",
            {"found": "0.21.0, which is too old", "expected": "1.2.1", "remedy": "26.07."},
        ),
        (f"{TRTLLM}:1.1.0", "llmapi", {"found": "1.1.0, which is too old"}),
        (f"{TRTLLM}:2.0.0", "trt-engine", {"found": "2.0.0 (no engines since", "remedy": MIGRATE}),
        (f"{TRTLLM}:1.2.1", "llmapi", {"found": "TensorRT-LLM 1.2.1 and no Triton release"}),
        (f"{NVIDIA}:26.07-vllm-python-py3", "llmapi", {"found": "vllm", "expected": "with trtllm"}),
    ],
)
def test_other_images_are_refused_with_those_that_fit(image, kind, fields):
    with refused(**fields):
        triton_image(image, kind)


@pytest.mark.parametrize("kind", kinds_with("on_gpu"))
def test_every_release_that_an_engine_takes_is_in_the_table(kind):
    traits = ENGINE_KINDS[kind]

    assert all((traits.flavour, release) in STATED_IMAGES for release in traits.triton_releases)


def test_engines_are_built_by_one_tensorrt_llm_in_all_of_their_images():
    assert {STATED_IMAGES["trtllm", release].runtime for release in TRT_ENGINE.triton_releases} == {TENSORRT_LLM}


def gpu(driver):
    return Gpu(memory_gib=24, per_node=1, architecture="sm_89", driver=driver)


@pytest.mark.parametrize("driver", ["580.95.05", "590.44", None])
def test_a_driver_of_cudas_major_version_will_do_and_an_unknown_one_is_not_judged(driver):
    check_driver(STATED_IMAGES["vllm", "26.07"], "NVIDIA-L4", gpu(driver))


def test_an_older_driver_is_refused_with_the_images_that_it_runs():
    with refused(what="CUDA 13.1", found="575.57.08", expected="580 or later", remedy="up to 25.10"):
        check_driver(STATED_IMAGES["trtllm", "26.04"], "NVIDIA-L4", gpu("575.57.08"))


def test_every_image_of_a_trt_engine_holds_the_same_tensorrt():
    """So that an engine may be built in one of them and served in another, as over several nodes."""
    images = [STATED_IMAGES["trtllm", release] for release in TRT_ENGINE.triton_releases]

    assert {image.tensorrt for image in images} == {"10.14.1.48"}
