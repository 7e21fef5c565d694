"""Refuses checkpoints with layers in 16 bits that their own configuration does not leave out. Pure.

vLLM decides by the configuration which layers are packed, and loads 16-bit weights into the packed form of one that it
does not find there: it fails with their sizes, or answers with them (vllm-project/vllm issues 27607 and 40252, pull
request 41994). The index names the tensors, so it is known before a byte is downloaded. GPTQ and AWQ are not judged:
vLLM looks at the files of these itself (maybe_update_config of auto_gptq.py and auto_awq.py, at v0.24.0).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.engines.checkpoint.config_defaults import completed
from slipway.tasks.engines.preflight.fused_layers import LEFT_OUT, Fields, fused_of, rules_of
from slipway.tasks.engines.preflight.source_formats import COMPRESSED, name_of

SCALES = frozenset({"weight_scale", "weight_scale_inv", "weight_packed", "weight_scale_2"})
"""Last parts of names that a packed layer's tensors have, of each method that is judged."""
JUDGED = frozenset({"fp8", "modelopt"})
DECODER = re.compile(r"(?:^|\.)layers\.(?P<number>[0-9]{1,5})\.(?P<rest>.+)$")
OF_OTHER_PARTS = ("vision", "visual", "audio", "mtp")


def check_unpacked_layers(config: Fields, stated: Any, index: Any, version: str, what: str) -> None:
    """Refuse layers in 16 bits that vLLM would take for packed ones.

    A layer of the decoder is judged if others of its name are packed, or if the configuration leaves out a layer that
    the checkpoint does not have and that its name begins with: it is left out under an older name.

    Args:
        config: config.json.
        stated: its quantization_config.
        index: the weight_map of model.safetensors.index.json, or another mapping from the tensors' names.
        version: of vLLM.
        what: the source, for the message.

    Raises:
        InputError: the first of the layers.
    """
    if not isinstance(stated, Mapping) or not isinstance(index, Mapping) or not _is_judged(stated):
        return
    rules = [rule for rule in rules_of(stated) if rule.says in LEFT_OUT]
    if not rules:  # none, or an expression that is not tried
        return
    listed = {_in_decoder(name) for rule in rules for name in rule.names}
    wholes = {part: whole for whole, *parts in fused_of(config, version) for part in parts}
    packed = {name.rpartition(".")[0] for name in index if name.rpartition(".")[2] in SCALES}
    packed_names = {module.rpartition(".")[2] for module in packed}
    absent = listed - {_in_decoder(name.rpartition(".")[0]) for name in index}

    def is_left_out(module: str) -> bool:
        folder, _, last = module.rpartition(".")
        names = (module, f"{folder}.{wholes.get(last, last)}")
        return any(
            _in_decoder(name) in listed or rule.part(name) or rule.whole(name) for name in names for rule in rules
        )

    foreign = [
        module
        for module in sorted(_plain(index, packed, completed(config).get("num_hidden_layers")))
        if module.rpartition(".")[2] in packed_names or _begins(_in_decoder(module), absent)
        if not is_left_out(module)
    ]
    if foreign:
        raise InputError(
            f"{what} has layers in 16 bits that its quantization_config does not leave out, and vLLM takes them for "
            "quantized ones",
            found=f"{len(foreign)} of them, the first {foreign[0]}",
            expected="only those that the configuration leaves out",
            remedy="Add them to the list in config.json of a copy, or choose another checkpoint.",
        )


def _is_judged(stated: Fields) -> bool:
    """Whether the configuration packs every layer that it does not leave out."""
    if name_of(stated).startswith(COMPRESSED):
        groups = stated.get("config_groups")
        targets = [each.get("targets") for each in groups.values() if isinstance(each, Mapping)] if groups else []
        return len(targets) == 1 and targets[0] == ["Linear"]
    return str(stated.get("quant_method")).lower() in JUDGED and "quantized_layers" not in stated


def _plain(index: Collection[str], packed: Collection[str], layers: Any) -> Iterator[str]:
    """Linear layers of the decoder whose weights are not packed."""
    for name in index:
        module, _, last = name.rpartition(".")
        match = DECODER.search(module)
        if last != "weight" or match is None or module in packed or "proj" not in module.rpartition(".")[2]:
            continue
        predicts = isinstance(layers, int) and int(match["number"]) >= layers
        if not predicts and not any(part in module for part in OF_OTHER_PARTS):
            yield module


def _in_decoder(name: str) -> str:
    """A layer's name without the models around the language model, which have several names themselves."""
    match = DECODER.search(name)
    return f"layers.{match['number']}.{match['rest']}" if match else name


def _begins(name: str, others: Collection[str]) -> bool:
    return any(name[:length] in others for length in range(len(name) // 2, len(name)))
