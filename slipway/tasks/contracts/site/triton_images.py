"""What NVIDIA's Triton images contain, by release, and which GPU drivers they run on. Each row names its source."""

import re
from dataclasses import dataclass

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, outlasting
from slipway.tasks.contracts.engine.triton_releases import ROWS, Flavour, Row
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Gpu


@dataclass(frozen=True)
class TritonImage:
    """Contents of one image of a Triton release."""

    release: str
    flavour: Flavour
    runtime: str
    """Version of TensorRT-LLM, or of vLLM."""
    tensorrt: str | None
    cuda: str
    source: str


MATRIX = "triton-inference-server/server docs/introduction/compatibility.md @ {commit}"
BACKEND_IMAGE = "triton-inference-server/tensorrtllm_backend dockerfile/Dockerfile.triton.trt_llm_backend @ r{release}"
BUILT_FROM: frozenset[str] = frozenset({"26.04", "26.05", "26.06", "26.07"})
"""Releases whose trtllm image's own Dockerfile was read too: it names the same TensorRT-LLM and TensorRT."""


def _stated(flavour: Flavour, row: Row) -> TritonImage:
    release, runtime, tensorrt, cuda, commit, _ = row
    own = f"; {BACKEND_IMAGE.format(release=release)}" if flavour == "trtllm" and release in BUILT_FROM else ""
    return TritonImage(release, flavour, runtime, tensorrt, cuda, MATRIX.format(commit=commit) + own)


STATED_IMAGES: dict[tuple[Flavour, str], TritonImage] = {
    (flavour, row[0]): _stated(flavour, row) for flavour, rows in ROWS.items() for row in rows
}

ENGINES_END = "1.3.0rc21"
"""First TensorRT-LLM without engines (GitHub release v1.3.0rc20: the last one with the TensorRT backend; pull requests
15907 and 15918). No Triton image with it is documented."""

TRTLLM_SERIES = (1, 2)
"""Series of TensorRT-LLM in every Triton image that serves it here."""
TRTLLM_EXPECTED = "TensorRT-LLM 1.2.1"

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
TRITON_RELEASE = re.compile(r"(?<![0-9.])(2[0-9]\.(?:0[1-9]|1[0-2]))(?![0-9.])")
TRTLLM_VERSION = re.compile(r"(?:tensorrt-llm/release:|trtllm-)v?([0-9]+\.[0-9]+\.[0-9]+(?:rc[0-9]+)?)")


def triton_image(image: str, kind: EngineKind) -> TritonImage:
    """Contents of the image that serves a GPU engine, by the Triton release that its tag names.

    A tag names a release as NVIDIA's own do (`26.07-trtllm-python-py3`); an image built from one of these repeats
    the release (`0.1.0-26.07`). A digest may follow.

    Raises:
        InputError: the tag names no release, or one that does not serve this kind of engine.
    """
    traits = ENGINE_KINDS[kind]
    name = image.partition("@")[0]
    tag = name.rpartition("/")[2].partition(":")[2]
    if runtime := TRTLLM_VERSION.search(name):
        raise _wrong_runtime(image, kind, runtime[1])
    release = TRITON_RELEASE.search(tag)
    if release is None:
        raise InputError(
            f"serving image {image} names no Triton release in its tag",
            expected=f"one that serves {kind}: {', '.join(traits.triton_releases)}",
            remedy="Name the release that it was built from in the tag, e.g. "
            f"0.1.0-{traits.triton_releases[-1]}; it decides what {kind} can use.",
        )
    other = next((name for name in ("trtllm", "vllm") if name in tag and name != traits.flavour), None)
    contents = STATED_IMAGES.get((traits.flavour, release[1])) if traits.flavour else None
    if other is not None or contents is None or release[1] not in traits.triton_releases:
        raise InputError(
            f"serving image {image} cannot serve {kind}",
            found=other or _described(contents, release[1]),
            expected=f"Triton {', '.join(traits.triton_releases)} with {traits.flavour}",
            remedy=f"Choose one of these images{_or_migrate(kind)}.",
        )
    return contents


def _described(contents: TritonImage | None, release: str) -> str:
    if contents is None:
        return (
            f"Triton {release}, which is not in the table of images (slipway/tasks/contracts/engine/triton_releases.py)"
        )
    return f"Triton {release}, which contains {contents.flavour} {contents.runtime}"


def _wrong_runtime(image: str, kind: EngineKind, version: str) -> InputError:
    traits = ENGINE_KINDS[kind]
    series = tuple(int(part) for part in version.split(".")[:2])
    what, found = f"serving image {image} cannot serve {kind}", f"TensorRT-LLM {version}"
    fitting = f"Choose an image of Triton {', '.join(traits.triton_releases)}"
    if traits.flavour == "trtllm" and series < TRTLLM_SERIES:
        return InputError(what, found=f"{found}, which is too old", expected=TRTLLM_EXPECTED, remedy=f"{fitting}.")
    if traits.compiled and series > TRTLLM_SERIES:
        return InputError(
            what,
            found=f"{found} (no engines since {ENGINES_END})",
            expected=TRTLLM_EXPECTED,
            remedy=f"{fitting}{_or_migrate(kind)}.",
        )
    return InputError(what, found=f"{found} and no Triton release", remedy=f"{fitting}.")


def _or_migrate(kind: EngineKind) -> str:
    later = outlasting(kind)
    return f", or move the spec with `slipway migrate --to {later[0]}`" if later else ""


def check_digest(field: str, image: str) -> None:
    """Refuse an image named by tag alone: keys use the name, so an image rebuilt under the same tag would go unnoticed.

    Raises:
        InputError: the image has no digest; the remedy is how to find it.
    """
    if not DIGEST.search(image):
        name = image.partition("@")[0]
        raise InputError(
            f"{field} names an image by its tag, which may later point to another image",
            found=image,
            expected=f"{name}@sha256: and 64 hex digits",
            remedy=f"Append the digest that `crane digest {name}` or `docker buildx imagetools inspect {name}` prints.",
        )


MINIMUM_DRIVER = {"13": 580, "12": 525}
"""Branch of the driver by CUDA's major version (docs.nvidia.com/deploy/cuda-compatibility, minor version
compatibility, table 1). An older one needs NVIDIA's forward compatibility package, which is not assumed."""


def check_driver(image: TritonImage, product: str, gpu: Gpu) -> None:
    """Refuse nodes whose driver is too old for the image's CUDA; a driver that the site file leaves out is not checked.

    Raises:
        InputError: the driver is too old. Names the branch that is needed.
    """
    needed = _minimum_driver(image)
    if gpu.driver is None or int(gpu.driver.partition(".")[0]) >= needed:
        return
    older = [
        other.release
        for other in STATED_IMAGES.values()
        if other.flavour == image.flavour and _minimum_driver(other) <= int(gpu.driver.partition(".")[0])
    ]
    fits = f" It runs images up to {max(older)}." if older else ""
    raise InputError(
        f"gpus.{product}.driver is too old for CUDA {image.cuda} of Triton {image.release} with {image.flavour}",
        found=gpu.driver,
        expected=f"{needed} or later",
        remedy=f"Upgrade the nodes' driver.{fits}",
    )


def _minimum_driver(image: TritonImage) -> int:
    return MINIMUM_DRIVER[image.cuda.partition(".")[0]]
