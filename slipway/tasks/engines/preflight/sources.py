"""What a release takes of a model's and an adapter's repositories: files to download, and documents that plan reads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import File
from slipway.tasks.contracts.stored.plan import HubFile, Source
from slipway.tasks.engines.checkpoint.files import COMPANIONS, INDEX, WHOLE, parse_document
from slipway.tasks.engines.preflight.hub_metadata import QUANTIZED_BY_MODELOPT
from slipway.tasks.engines.preflight.loras import ADAPTER_CONFIG, ADAPTER_WEIGHTS

if TYPE_CHECKING:  # the client is loaded when a step connects to the Hub
    from slipway.tasks.adapters.hub.hub import Hub

SAFETENSORS = "*.safetensors"
NAMED_BY_TRANSFORMERS = "model*.safetensors"
OF_OTHER_LOADERS = "consolidated*.safetensors"
"""Weights in the layout of a publisher's own code, beside those that transformers reads."""
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def files_of_release(source: Source) -> Source:
    """The source with only the files that a release is made of: weights, configuration, tokenizer. No pickles.

    Where an index says which weights there are, all files that it may name stay until `by_index` has read it.

    Raises:
        InputError: it has no safetensors weights, or a file whose name an artifact cannot hold; or it has the weights
            twice, so that transformers and a runtime would read different ones.
    """
    top = [file for file in source.files if "/" not in file.path]
    weights = [file for file in top if fnmatchcase(file.path, SAFETENSORS)]
    named = [file for file in weights if fnmatchcase(file.path, NAMED_BY_TRANSFORMERS)]
    indexed = any(file.path == INDEX for file in top)
    if named and not indexed:
        _check_single(source, named)
        weights = named
    elif named:
        weights = [file for file in weights if not fnmatchcase(file.path, OF_OTHER_LOADERS)]
    elif weights and all(file.path == ADAPTER_WEIGHTS for file in weights):
        raise InputError(
            f"{source.name} is a LoRA adapter, and no model",
            found=ADAPTER_WEIGHTS,
            expected="the weights of a whole model",
            remedy="Name the model that it was trained for in `source`, and this repository in `engine.lora`.",
        )
    return _with_files(source, weights, (*COMPANIONS, INDEX, QUANTIZED_BY_MODELOPT))


def by_index(source: Source, documents: Mapping[str, Mapping[str, Any]]) -> Source:
    """The source with only the weights that its index names, where it has one.

    Raises:
        InputError: the index names a file that the source lacks; or beside its files there is one that transformers
            would read in place of them.
    """
    index = documents.get(INDEX, {}).get("weight_map")
    if not isinstance(index, Mapping) or not index:
        return source
    named, present = set(index.values()), {file.path for file in source.files}
    if missing := sorted(named - present):
        raise InputError(
            f"{source.name} lacks weights that its index names",
            found=f"no {', '.join(missing[:3])}",
            expected=f"all {len(named)} files of {INDEX}",
            remedy="Choose a complete revision.",
        )
    if WHOLE in present - named:
        raise _twice(source, f"{WHOLE} beside the {len(named)} files of {INDEX}")
    kept = [file for file in source.files if file.path in named or not fnmatchcase(file.path, SAFETENSORS)]
    return source.model_copy(update={"files": tuple(kept)})


def _check_stored_alike(source: Source, weights: Sequence[HubFile], files: Sequence[HubFile]) -> None:
    """Refuse empty weights, and two files whose names differ by case alone, which some file systems hold as one."""
    for file in weights:
        if not file.size_bytes:
            raise InputError(
                f"{source.name} {file.path} is empty",
                found="0 bytes",
                expected="a safetensors file",
                remedy="Upload it again, or choose a complete revision.",
            )
    by_name: dict[str, str] = {}
    for file in files:
        if other := by_name.get(file.path.lower()):
            raise InputError(
                f"{source.name} has {other} and {file.path}",
                expected="names that differ by more than the case of letters",
                remedy="Delete one of the two.",
            )
        by_name[file.path.lower()] = file.path


def _check_single(source: Source, named: Sequence[HubFile]) -> None:
    others = [file.path for file in named if SHARD.fullmatch(file.path)]
    if others and any(file.path == WHOLE for file in named):
        raise _twice(source, f"{WHOLE} and {others[0]} without {INDEX}")


def _twice(source: Source, found: str) -> InputError:
    return InputError(
        f"{source.name} has weights twice: transformers reads {WHOLE}, and servers read the others",
        found=found,
        expected="one set of weights",
        remedy="Choose a revision without the stale files, or delete them.",
    )


def files_of_adapter(source: Source) -> Source:
    """The source with only an adapter's weights and configuration.

    Raises:
        InputError: as for `files_of_release`.
    """
    weights = [file for file in source.files if file.path == ADAPTER_WEIGHTS]
    return _with_files(source, weights, (ADAPTER_CONFIG,))


def documents_of(source: Source, wanted: Iterable[str], hub: "Hub") -> dict[str, dict[str, Any]]:
    """The documents among `wanted` that the source has, by file name.

    Raises:
        InputError: as parse_document.
    """
    names = {file.path for file in source.files}
    documents = {}
    for name in (name for name in wanted if name in names):
        what = f"{source.name} {name}"
        documents[name] = parse_document(what, hub.read_file(source, name))
    return documents


def _with_files(source: Source, weights: Sequence[HubFile], companions: Sequence[str]) -> Source:
    """The source with only `weights` and the top-level files that match the patterns of `companions`."""
    top = [file for file in source.files if "/" not in file.path]
    if not weights:
        pickles = [file.path for file in top if any(fnmatchcase(file.path, pattern) for pattern in PICKLES)]
        raise InputError(
            f"{source.name} has no safetensors weights",
            found=f"only {', '.join(pickles[:3])}" if pickles else "no weights at its top",
            expected="*.safetensors, because a pickle can run code",
            remedy="Convert the weights (transformers: save_pretrained(safe_serialization=True)), or choose a revision "
            "that has them.",
        )
    others = [file for file in top if any(fnmatchcase(file.path, pattern) for pattern in companions)]
    files = sorted((*weights, *others), key=lambda file: file.path)
    _check_stored_alike(source, weights, files)
    for file in files:
        read_contract(File, {"path": file.path, "sha256": "0" * 64, "size_bytes": 0}, f"{source.repo} {file.path!r}")
    return source.model_copy(update={"files": tuple(files)})
