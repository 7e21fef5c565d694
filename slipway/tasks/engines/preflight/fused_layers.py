"""Refuses checkpoints in which vLLM would find a layer that it fuses partly quantized. Pure.

vLLM computes the projections of queries, keys and values as one layer, and others likewise (`packed_modules_mapping` of
a class), and asks the checkpoint's configuration about that one layer. Each method has its own way to name the layers
that it leaves out, and its own way to find the parts of a fused one among them:

- compressed-tensors: should_ignore_layer and find_matched_target of compressed_tensors/utils.py.
- fp8 and awq: is_layer_skipped of utils/quant_utils.py, by whole names and by parts of names.
- ModelOpt: is_layer_excluded of modelopt.py. It knows the parts by whole names alone: of a wildcard that names a part,
  it finds no fused layer, and loads the part's 16 bits as if they were packed. With MIXED_PRECISION each layer has a
  format of its own (_resolve_quant_algo).
- gptq: get_dynamic_override of utils/gptq_utils.py applies a regular expression to the fused layer's name alone, and
  is_layer_gptq_quantized looks for parts of names.

All in vllm/model_executor/layers/quantization, at v0.24.0 and v0.27.1; the first also at v0.32.0.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from slipway.tasks.contracts.engine.engine_kinds import NEWEST_VLLM
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.preflight.known_classes import architectures_of
from slipway.tasks.engines.preflight.source_formats import COMPRESSED, name_of
from slipway.tasks.engines.upstream.tables import table_of

AS_REGEX = "re:"
FOLDERS = {"qkv_proj": "self_attn", "gate_up_proj": "mlp"}
"""The modules in which models have the layers that patterns name."""
SIMPLE = re.compile(r"(?:\.\*)?(?:[\w-]|\\?\.)+(?:\.\*|\$)?")
"""What quantizers write: a literal, maybe with anything before or after it. Others, which a stranger may have made slow
to match, are taken to match nothing, and their checkpoints are not judged."""
LONGEST_PATTERN, MOST_PATTERNS = 200, 100
ANY_LAYER = "N"

Fields = Mapping[str, Any]
Matches = Callable[[str], bool]


class Rule(NamedTuple):
    """What a configuration says of some layers, and what vLLM reads of it."""

    says: str
    """How a message begins what it says of a part."""
    names: Sequence[str]
    part: Matches
    """Whether it says so of a layer as the checkpoint has it."""
    whole: Matches
    """Whether vLLM finds the same of a fused layer, by that layer's own name."""
    by_parts: Matches
    """Whether vLLM finds it of a fused layer's part."""


HAS_GROUP = "has a group for"
LEFT_OUT = IGNORES, LEAVES_OUT, EXCLUDES = "ignores", "leaves out", "excludes"
"""What rules say of layers that stay in 16 bits."""


def check_fused_layers(config: Fields, stated: Any, version: str, what: str, beside: Fields | None = None) -> None:
    """Refuse a configuration that says something of a part of a fused layer and not of the others.

    Args:
        config: config.json.
        stated: its quantization_config.
        version: of vLLM.
        what: the source, for the message.
        beside: ModelOpt's hf_quant_config.json, which counts where config.json states nothing.

    Raises:
        InputError: the parts of which it says so, and the others.
    """
    for rule in rules_of(stated if isinstance(stated, Mapping) else beside or {}):
        for whole, *parts in fused_of(config, version):
            _check(rule, whole, parts, what)


def rules_of(stated: Fields) -> Iterator[Rule]:
    """What a quantization_config says of single layers. None of what could be slow to match."""
    method, groups = str(stated.get("quant_method")).lower(), stated.get("config_groups")
    if name_of(stated).startswith(COMPRESSED):
        yield from _of_compressed_tensors(_names(stated.get("ignore")))
        yield from _of_groups([_names(_object(each).get("targets")) for each in _object(groups).values()])
    elif method == "fp8":
        names = _names(stated.get("ignored_layers")) or _names(stated.get("modules_to_not_convert"))
        exact = set(names).__contains__
        yield Rule(LEAVES_OUT, names, exact, exact, exact)
    elif method == "awq":
        names = _names(stated.get("modules_to_not_convert"))
        within = _within(names)
        yield Rule(LEAVES_OUT, names, within, within, within)
    elif method == "gptq":
        yield from _of_gptq(stated)
    elif method == "modelopt" or "quantization" in stated:
        yield from _of_modelopt(stated)


def _of_compressed_tensors(ignored: Sequence[str]) -> Iterator[Rule]:
    if (matches := _by_name_or_regex(ignored)) is not None:
        yield Rule(IGNORES, ignored, matches, set(ignored).__contains__, matches)


def _of_groups(groups: Sequence[Sequence[str]]) -> Iterator[Rule]:
    """Layers of each group, where there are several.

    A group of all layers of a class, as Linear, takes every fused layer whose own name no other group has.
    """
    of_classes = any(target[:1].isupper() for targets in groups for target in targets)
    for targets in groups if len(groups) > 1 else ():
        if (matches := _by_name_or_regex(targets)) is not None:
            yield Rule(HAS_GROUP, targets, matches, matches, _nothing if of_classes else matches)


def _by_name_or_regex(names: Sequence[str]) -> Matches | None:
    """None where an expression could be slow to match."""
    patterns = [name.removeprefix(AS_REGEX) for name in names if name.startswith(AS_REGEX)]
    if len(patterns) > MOST_PATTERNS or not all(_is_simple(pattern) for pattern in patterns):
        return None
    exact, compiled = set(names), [re.compile(pattern) for pattern in patterns]
    return lambda layer: layer in exact or any(pattern.match(layer) for pattern in compiled)


def _of_gptq(stated: Fields) -> Iterator[Rule]:
    for key, settings in list(_object(stated.get("dynamic")).items())[:MOST_PATTERNS]:
        pattern = key.removeprefix("-:").removeprefix("+:")
        changes = any(stated.get(name) != value for name, value in _object(settings).items())
        if _is_simple(pattern) and (changes or key.startswith("-:")):
            matches = _matching(pattern)
            yield Rule(f"has dynamic {key} for", (), matches, matches, _nothing)
    blocks = stated.get("modules_in_block_to_quantize")
    flat = [name for block in blocks for name in (block if isinstance(block, list) else [block])] if blocks else []
    within = _within(_names(flat))
    yield Rule("quantizes", _names(flat), within, _nothing, within)


def _of_modelopt(stated: Fields) -> Iterator[Rule]:
    inner = stated.get("quantization")
    own = inner if isinstance(inner, Mapping) else stated
    names = _names(own.get("exclude_modules")) or _names(own.get("ignore"))
    exact, within = set(names), _within(names)

    def matches(layer: str) -> bool:
        return layer in exact or any(fnmatchcase(layer, name) for name in names)

    yield Rule(EXCLUDES, names, exact.__contains__, exact.__contains__, exact.__contains__)
    yield Rule(EXCLUDES, names, matches, lambda layer: within(layer) or matches(layer), exact.__contains__)
    layers = _object(own.get("quantized_layers"))
    for algorithm in sorted({str(_object(each).get("quant_algo")) for each in layers.values()}):
        named = {name for name, each in layers.items() if _object(each).get("quant_algo") == algorithm}
        yield Rule(f"has {algorithm} for", sorted(named), named.__contains__, named.__contains__, named.__contains__)


def _check(rule: Rule, whole: str, parts: Sequence[str], what: str) -> None:
    for folder in _folders(whole, parts, rule.names):
        named = [part for part in parts if rule.part(f"{folder}.{part}")]
        found = [part for part in parts if rule.by_parts(f"{folder}.{part}")]
        if not named or rule.whole(f"{folder}.{whole}") or len(found) == len(parts):
            continue
        others = [part for part in parts if part not in named]
        without = f" without {', '.join(others)}" if others else f", and vLLM looks for {whole}"
        raise InputError(
            f"vLLM computes {', '.join(parts)} of {what} as one layer, and they are quantized differently",
            found=f"quantization_config {rule.says} {', '.join(named)} of {folder}{without}",
            expected="all of them, or none",
            remedy="Quantize the model again with all of them in the same list, or choose another checkpoint.",
        )


def _folders(whole: str, parts: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the places of the parts: beside each name that is one of them, and where a pattern finds them."""
    endings = tuple(f".{part}" for part in parts)
    plain = (name for name in names if name.endswith(endings) and not name.startswith((AS_REGEX, "*")))
    usual = {f"model.layers.{ANY_LAYER}.{FOLDERS[whole]}"} if whole in FOLDERS else set()
    return sorted({name.rpartition(".")[0] for name in plain} | usual)


def fused_of(config: Fields, version: str) -> list[list[str]]:
    """Names of the layers that a version of vLLM fuses for the model, each with those of its parts."""
    table = table_of("vllm", version) or table_of("vllm", NEWEST_VLLM) or {}
    named = architectures_of(config)
    fused = table.get("fused", {})
    return [layers.split() for layers, classes in fused.items() if any(each in classes for each in named)]


def _within(names: Sequence[str]) -> Matches:
    return lambda layer: any(name in layer for name in names)


def _matching(pattern: str) -> Matches:
    compiled = re.compile(pattern)
    return lambda layer: compiled.match(layer) is not None


def _nothing(_: str) -> bool:
    return False


def _is_simple(pattern: str) -> bool:
    return len(pattern) <= LONGEST_PATTERN and SIMPLE.fullmatch(pattern) is not None


def _names(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _object(value: Any) -> Fields:
    return value if isinstance(value, Mapping) else {}
