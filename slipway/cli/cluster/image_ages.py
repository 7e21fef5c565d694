"""How old a site's serving images are against the newest that the table of Triton's images knows. Pure."""

from collections.abc import Iterator

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, kinds_with, outlasting
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.site.triton_images import STATED_IMAGES, TritonImage, triton_image

RUNTIMES = {"trtllm": "TensorRT-LLM", "vllm": "vLLM"}


def image_ages(site: Site) -> Iterator[str]:
    """A line for each image that serves a kind, and one for the image of several nodes."""
    for kind, image in site.images.serving.items():
        yield f"{kind}: {_age(kind, image)}: {image}"
    if site.images.multinode is not None:
        kind = kinds_with("spans_nodes")[0]
        yield f"several nodes: {_age(kind, site.images.multinode)}: {site.images.multinode}"


def _age(kind: EngineKind, image: str) -> str:
    traits = ENGINE_KINDS[kind]
    if traits.flavour is None:
        return "built by this project, on no image of NVIDIA's"
    try:
        pinned = triton_image(image, kind)
    except InputError as error:
        return (
            f"refused by plan, {error.what}, found {error.found}" if error.found else f"refused by plan, {error.what}"
        )
    newest = STATED_IMAGES[traits.flavour, traits.triton_releases[-1]]
    behind = months_between(pinned.release, newest.release)
    age = (
        f"{behind} month{'s' if behind > 1 else ''} behind {_named(newest)}" if behind else "the newest that serves it"
    )
    later = outlasting(kind)
    ends = f", and the last: `slipway migrate --to {later[0]}` moves its specs on" if later and not behind else ""
    return f"{_named(pinned)}, {age}{ends}"


def _named(image: TritonImage) -> str:
    return f"Triton {image.release} ({RUNTIMES[image.flavour]} {image.runtime})"


def months_between(earlier: str, later: str) -> int:
    """Months from one Triton release to another, each a year and a month such as 26.07."""
    first, second = ([int(part) for part in release.split(".")] for release in (earlier, later))
    return 12 * (second[0] - first[0]) + second[1] - first[1]
