"""What an image holds by its tag, which engines it serves, and on which drivers."""

import pytest

from tasks.contracts.compatibility import FLAVOURS, RELEASES, STATED_IMAGES, check_driver, image_of
from tasks.contracts.errors import InputError
from tasks.contracts.site import Gpu
from tasks.engines.trt_engine import TENSORRT_LLM

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
    assert image_of(image, kind).runtime == runtime


@pytest.mark.parametrize(
    ("image", "kind", "words"),
    [
        ("slipway/tasks-gpu:0.1.0", "trt-engine", r"names no Triton release.*e\.g\. 0\.1\.0-26\.07.*26\.04, 26\.05"),
        ("slipway/tasks-gpu", "vllm", "names no Triton release"),
        (f"{NVIDIA}:26.02-trtllm-python-py3", "trt-engine", r"26\.02 holds trtllm 1\.1\.0.*runs on Triton 26\.04"),
        (f"{NVIDIA}:26.10-trtllm-python-py3", "trt-engine", r"26\.10 is not in the table.*slipway migrate --to llmapi"),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc22",
            "trt-engine",
            r"1\.3\.0rc22, expected 1\.2\.1; engines ended",
        ),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:0.21.0",
            "trt-engine",
            r"0\.21\.0 is too old, expected 1\.2\.1.*26\.07\.$",
        ),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.1.0", "llmapi", r"1\.1\.0 is too old"),
        ("nvcr.io/nvidia/tensorrt-llm/release:2.0.0", "trt-engine", r"2\.0\.0, expected 1\.2\.1; engines ended"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.1", "llmapi", "names TensorRT-LLM 1.2.1 and no Triton release"),
        (f"{NVIDIA}:26.07-vllm-python-py3", "llmapi", r"it holds vllm\. llmapi runs on"),
    ],
)
def test_other_images_are_refused_with_those_that_fit(image, kind, words):
    with pytest.raises(InputError, match=words):
        image_of(image, kind)


@pytest.mark.parametrize("kind", RELEASES)
def test_every_release_that_an_engine_takes_is_in_the_table(kind):
    assert all((FLAVOURS[kind], release) in STATED_IMAGES for release in RELEASES[kind])


def test_engines_are_built_by_one_tensorrt_llm_in_all_of_their_images():
    assert {STATED_IMAGES["trtllm", release].runtime for release in RELEASES["trt-engine"]} == {TENSORRT_LLM}


def gpu(driver):
    return Gpu(memory_gib=24, per_node=1, architecture="sm_89", driver=driver)


@pytest.mark.parametrize("driver", ["580.95.05", "590.44", None])
def test_a_driver_of_cudas_major_version_will_do_and_an_unknown_one_is_not_judged(driver):
    check_driver(STATED_IMAGES["vllm", "26.07"], "NVIDIA-L4", gpu(driver))


def test_an_older_driver_is_refused_with_the_images_that_it_runs():
    with pytest.raises(
        InputError, match=r"driver is 575\.57\.08.*CUDA 13\.1.*580 or later; it runs images up to 25\.10"
    ):
        check_driver(STATED_IMAGES["trtllm", "26.04"], "NVIDIA-L4", gpu("575.57.08"))


def test_every_image_of_a_trt_engine_holds_the_same_tensorrt():
    """So that an engine may be built in one of them and served in another, as over several nodes."""
    images = [STATED_IMAGES["trtllm", release] for release in RELEASES["trt-engine"]]

    assert {image.tensorrt for image in images} == {"10.14.1.48"}
