"""engine.options that GPU engines have in common: their values, what holds when one is absent, and their checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import ROOM
from slipway.tasks.contracts.engine.lora_support import MAX_RANK
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.host_cache import HOST_CACHE
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.preflight.memory_fit import USABLE


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


def _is_rank(value: Any) -> bool:
    return _is_count(value) and value <= MAX_RANK


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAX_HOST_GIB


MAX_HOST_GIB = 2**14
"""More than the memory of any node."""

CHUNKED_PREFILL = "chunked_prefill"
GUIDED_DECODING = "guided_decoding_backend"
GUIDED_BACKENDS = frozenset({"xgrammar"})
"""Values of guided_decoding_backend. Any other one ends the start of Triton's C++ backend; with one of these, the LLM
API also loads the checkpoint's tokenizer by transformers."""

OPTIONS: Mapping[str, Option] = {
    "chat_template": Option(
        "apply or none; apply where the tokenizer has one when absent", {"apply", "none"}.__contains__
    ),
    "kv_cache_fraction": Option("above 0 and below 1, 0.9 when absent", _is_share),
    "max_num_tokens": Option("1 or more", _is_count),
    CHUNKED_PREFILL: Option("true or false, the runtime's own choice when absent", _is_switch),
    HOST_CACHE: Option("above 0, none when absent", _is_size),
    "prefix_caching": Option("true or false, true when absent", _is_switch),
    "enforce_eager": Option("true or false, false when absent", _is_switch),
    "max_loras": Option("1 or more, as many as engine.lora names when absent", _is_count),
    ROOM: Option(f"1 to {MAX_RANK}, no room for adapters of a live model when absent", _is_rank),
    GUIDED_DECODING: Option("xgrammar, none when absent", GUIDED_BACKENDS.__contains__),
}
"""Whether prompts are wrapped; the cache's share of the memory that the model leaves free (vllm: the server's share of
the whole GPU); tokens of one step; whether a prompt may be computed in several steps; GiB of the host's memory, for
each GPU, that keep blocks of the cache which left the GPU; whether prompts that begin alike share their cache; whether
CUDA graphs are disabled; LoRA adapters on the GPU at once, a request for another one waiting until it is loaded; the
highest rank of those that are added to the live model; and what makes answers obey a JSON Schema. EngineTraits.options
says which kind has which."""


def check_options(spec: ReleaseSpec) -> None:
    """Refuse options that the kind does not have, and values that they do not take.

    Raises:
        InputError: the option, and the known ones.
    """
    options = {name: OPTIONS[name] for name in spec.engine.traits.options}
    for name, value in spec.engine.options.items():
        if name not in options or not options[name].takes(value):
            known = ", ".join(f"{each} ({option.expected})" for each, option in options.items())
            raise InputError(
                f"engine.options.{name} does not exist for {spec.engine.kind}, or takes other values",
                found=repr(value),
                expected=known,
                remedy="Correct or remove it.",
            )
    _check_step(spec)


def _check_step(spec: ReleaseSpec) -> None:
    """Refuse steps that hold fewer tokens than the engine may have to compute at once."""
    engine, chunked = spec.engine, spec.engine.options.get(CHUNKED_PREFILL) is True
    tokens = engine.options.get("max_num_tokens")
    batch = engine.tokens_of_a_batch
    least = batch if chunked else max(batch, engine.max_input_tokens)
    if tokens is not None and int(tokens) < least:
        prompt = "" if chunked else f"{engine.max_input_tokens} (max_input_tokens) and "
        raise InputError(
            "engine.options.max_num_tokens is too low: a step holds "
            f"{'' if chunked else 'a whole prompt and '}a token of every sequence",
            found=str(tokens),
            expected=f"at least {prompt}{batch} (max_batch_size"
            f"{f' x {batch // engine.max_batch_size} with the tokens that are guessed' if engine.speculative else ''})",
            remedy="Raise it or remove it." if chunked else f"Raise it, remove it, or set {CHUNKED_PREFILL}.",
        )


def check_host_cache(spec: ReleaseSpec, *, shares_cache: bool) -> None:
    """Refuse host memory that TensorRT-LLM would not use: only blocks that other requests may share move there.

    Raises:
        InputError: the engine shares none of its cache between requests.
    """
    if HOST_CACHE in spec.engine.options and not shares_cache:
        raise InputError(
            f"engine.options.{HOST_CACHE} has no effect: TensorRT-LLM keeps only blocks that requests may share, and "
            "this engine shares none",
            found=f"format {spec.quantization.format}, kv_cache {spec.quantization.kv_cache}, prefix_caching "
            f"{str(spec.engine.options.get('prefix_caching', True)).lower()}",
            remedy="Remove it, or let prompts share their cache.",
        )


def kv_cache_fraction(spec: ReleaseSpec) -> float:
    """The runtime's share of memory, in the sense of its own setting."""
    return float(spec.engine.options.get("kv_cache_fraction", USABLE))
