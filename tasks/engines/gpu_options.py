"""engine.options of the GPU engines, and what every GPU engine checks before any pod starts."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasks.contracts.base import read_contract
from tasks.contracts.compatibility import (
    FORMATS,
    KV_CACHES,
    check_driver,
    check_format,
    gpus_to_hold,
    image_of,
    nodes_of,
    served,
)
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Source
from tasks.contracts.site import Gpu, Site
from tasks.contracts.spec import ReleaseSpec
from tasks.engines.announced import Documents, check_not_quantized_twice, has_chat_template
from tasks.engines.checkpoint import CONFIG, check_files, check_limits
from tasks.engines.lora import highest_rank
from tasks.engines.memory import (
    GIB,
    USABLE,
    Fitting,
    bytes_on_gpus,
    check_parallel,
    shape_of,
    weights_bytes,
)
from tasks.engines.remedies import check_fit

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")

OptionValue = str | int | float | bool


@dataclass(frozen=True)
class Option:
    """One of engine.options."""

    expected: str
    takes: Callable[[Any], bool]


def _is_switch(value: Any) -> bool:
    return isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return isinstance(value, float) and 0 < value < 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


COMMON: Mapping[str, Option] = {
    "chat_template": Option(
        "apply or none; apply where the tokenizer has one when absent", {"apply", "none"}.__contains__
    ),
    "kv_cache_fraction": Option("above 0 and below 1, 0.9 when absent", _is_share),
    "max_num_tokens": Option("1 or more", _is_count),
}
"""Whether prompts are wrapped; the share of memory for the cache, of what the model leaves free (vllm: the share of the
whole GPU, for everything); and tokens of one step."""

PREFIX_CACHING = Option("true or false, true when absent", _is_switch)
"""Whether prompts that begin alike share their cache."""

EAGER = Option("true or false, false when absent", _is_switch)
"""Whether CUDA graphs are left out."""

MAX_LORAS = Option("1 or more, as many as engine.lora names when absent", _is_count)
"""LoRA adapters that are on the GPU at once; a request of another one waits until it was brought there."""


def check_options(spec: ReleaseSpec, options: Mapping[str, Option]) -> None:
    """Refuse options that the kind does not have, and values that they do not take.

    Raises:
        InputError: the option, and the ones there are.
    """
    for name, value in spec.engine.options.items():
        if name not in options or not options[name].takes(value):
            known = ", ".join(f"{each} ({option.expected})" for each, option in options.items())
            raise InputError(f"engine.options.{name} is {value!r}; {spec.engine.kind} has the options {known}.")
    tokens = spec.engine.options.get("max_num_tokens")
    if tokens is not None and int(tokens) < max(spec.engine.max_batch_size, spec.engine.max_input_tokens):
        raise InputError(
            f"engine.options.max_num_tokens is {tokens}; a step must hold a whole prompt "
            f"({spec.engine.max_input_tokens} tokens) and a token of every sequence ({spec.engine.max_batch_size}). "
            "Raise it or remove it."
        )


@dataclass(frozen=True)
class Checked:
    """What the checks found out on their way."""

    nodes: int
    quantized: bool


Check = Callable[[ReleaseSpec, Site, Source, Documents], None]
"""Engine.check of a kind."""


def check_gpu_engine(spec: ReleaseSpec, site: Site, source: Source, documents: Documents, check: Check) -> Checked:
    """What every GPU engine needs: files, image, driver, arithmetic of the GPU, nodes, calibration, and memory.

    Args:
        spec: what was asked.
        site: where.
        source: the files that will be taken.
        documents: what the source says of itself.
        check: all that the kind checks; a change of the spec is proposed only if it passes.

    Raises:
        InputError: what cannot work, and what would.
    """
    check_files(source)
    product, gpu = gpu_of(spec, site)
    name = serving_image(spec, site)
    image = image_of(name, spec.engine.kind)
    check_digest("serving.image" if spec.serving.image else f"images.serving.{spec.engine.kind}", name)
    check_driver(image, product, gpu)
    check_format(spec.engine.kind, spec.quantization, product, gpu.architecture)
    nodes = nodes_of(spec.engine.kind, spec.engine.tensor_parallel, spec.engine.pipeline_parallel, product, gpu)
    config = documents.get(CONFIG, {})
    check_limits(dict(config), spec)
    quantized = check_not_quantized_twice(spec, source, documents)
    _check_calibration(spec)
    _check_chat_template(spec, source, documents)
    shape = shape_of(config)
    check_parallel(spec, shape)
    fitting = Fitting(spec, gpu, shape, weights_bytes(source), quantized, highest_rank(spec, documents))

    def accepts(changed: ReleaseSpec) -> bool:
        try:
            check(read_contract(ReleaseSpec, changed.model_dump(mode="json"), spec.name), site, source, documents)
        except InputError:
            return False
        return True

    check_fit(fitting, accepts)
    _check_quantizing(spec, site, source)
    return Checked(nodes, quantized)


def gpu_of(spec: ReleaseSpec, site: Site) -> tuple[str, Gpu]:
    """The GPU product that the spec names, which plan has found in the site."""
    product = spec.engine.gpu or ""
    if product not in site.gpus:
        raise InputError(
            f"engine.gpu {product}: site {site.name} has {', '.join(sorted(site.gpus)) or 'no GPU'}. Choose one of "
            "its own."
        )
    return product, site.gpus[product]


def serving_image(spec: ReleaseSpec, site: Site) -> str:
    """The image that serves the release, unless its ranks span nodes.

    Raises:
        InputError: neither spec nor site names one.
    """
    image = spec.serving.image or site.images.serving.get(spec.engine.kind)
    if image is None:
        raise InputError(
            f"site {site.name} names no serving image for {spec.engine.kind}. Add images.serving.{spec.engine.kind} "
            "to the site file or serving.image to the spec."
        )
    return image


def check_digest(field: str, image: str) -> None:
    """Refuse an image by tag alone: keys hold the name, and a rebuilt image under the same tag would count as the same.

    Raises:
        InputError: the field, what it holds, and how to find the digest.
    """
    if not DIGEST.search(image):
        name = image.partition("@")[0]
        raise InputError(
            f"{field} is {image}, expected {name}@sha256: and 64 hex digits: what an image made is found again by the "
            "image's name, and a tag may come to name another one. Write the digest behind it, which "
            f"`crane digest {name}` or `docker buildx imagetools inspect {name}` prints."
        )


def chat_template_of(spec: ReleaseSpec, *, has_template: bool) -> Literal["apply", "none"]:
    """What serving does with a prompt: what the spec says, else what the tokenizer can.

    Raises:
        InputError: the spec says apply and the tokenizer has none.
    """
    asked = spec.engine.options.get("chat_template")
    if asked == "apply" and not has_template:
        raise InputError(
            f"engine.options.chat_template is apply; the tokenizer of {spec.source.repo} has no chat template, "
            "neither a file of its own nor one in tokenizer_config.json. Choose none, or a model that was trained to "
            "chat."
        )
    return "apply" if has_template and asked != "none" else "none"


def kv_cache_fraction(spec: ReleaseSpec) -> float:
    """The share of memory that the runtime takes, as its own setting means it."""
    return float(spec.engine.options.get("kv_cache_fraction", USABLE))


def _check_quantizing(spec: ReleaseSpec, site: Site, source: Source) -> None:
    """Refuse weights that no node's GPUs hold before they are smaller, which quantize would find after the download."""
    product, gpu = gpu_of(spec, site)
    held = bytes_on_gpus(spec, source)
    needed = gpus_to_hold(held, gpu)
    if needed <= gpu.per_node:
        return
    asked = spec.quantization
    holding = [
        f"engine.gpu {name}"
        for name, other in sorted(site.gpus.items())
        if gpus_to_hold(held, other) <= other.per_node
        and asked.format in served(FORMATS, spec.engine.kind, other.architecture)
        and asked.kv_cache in served(KV_CACHES, spec.engine.kind, other.architecture)
    ]
    raise InputError(
        f"{source.repo} has {held / GIB:.1f} GiB of weights before they are quantized to {asked.format}; on one node "
        f"they take {needed} {product} of {gpu.memory_gib:g} GiB, and a node of site {site.name} has {gpu.per_node}. "
        f"What would hold them: {'; '.join(holding) or 'a GPU with more memory, or nodes with more GPUs'}."
    )


def _check_chat_template(spec: ReleaseSpec, source: Source, documents: Documents) -> None:
    names = {file.path for file in source.files}
    chat_template_of(spec, has_template=has_chat_template(names, documents))


def _check_calibration(spec: ReleaseSpec) -> None:
    quantization = spec.quantization
    if quantization.reads_texts and quantization.calibration is None:
        raise InputError(
            f"quantization.calibration is missing; {quantization.format} with kv_cache {quantization.kv_cache} takes "
            "its scales from texts, and the quantizer's own would come from the internet. Name a dataset on the Hub."
        )
    if not quantization.reads_texts and quantization.calibration is not None:
        raise InputError(
            f"quantization.calibration: {quantization.format} looks at no texts, and none would be read. Remove it."
        )
