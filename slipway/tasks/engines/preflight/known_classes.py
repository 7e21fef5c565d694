"""Refuses a model that the runtime has no class for, or that generates no text, by upstream's own lists. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from slipway.tasks.contracts.engine.engine_kinds import NEWEST_VLLM
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.triton_images import TritonImage
from slipway.tasks.engines.upstream.tables import OLDEST_WITH_VERSION_5, PACKAGES, Table, table_of

VERSION_4 = "4.57.3"
"""The transformers that TensorRT-LLM 1.2.1 pins; it also stands for version 4 under vLLM."""

NAMES = {"trtllm": "TensorRT-LLM", "vllm": "vLLM"}

WITH_TRANSFORMERS = frozenset({"vllm"})
"""Runtimes that compute a class of transformers where they have none of their own."""

NO_TEXT = (
    *("ForSequenceClassification", "ForTokenClassification", "ForRewardModel", "RewardModel", "ForMaskedLM"),
    *("ForQuestionAnswering", "ForImageClassification", "ForRetrieval", "ForTextEmbedding", "EmbeddingModel"),
)
"""How classes end that do not generate text (vllm/config/model.py, _SUFFIX_TO_DEFAULTS)."""

FAMILY_CHARS, SHOWN = 6, 6
"""Letters by which names of one family are found, and names that a message shows."""


def architectures_of(config: Mapping[str, Any]) -> Sequence[str]:
    """The classes that config.json names, in order."""
    named = config.get("architectures")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def check_known_class(config: Mapping[str, Any], runtime: TritonImage, what: str) -> None:
    """Refuse a model that the image's runtime cannot load, or that it would load as something else than a generator.

    Nothing is checked for a version without a table.

    Args:
        config: config.json.
        runtime: what the serving image contains.
        what: the source, for the message.

    Raises:
        InputError: the class or the model type, and the list in which it was looked for.
    """
    table = table_of(PACKAGES[runtime.flavour], runtime.runtime)
    if table is None:
        return
    name = f"{NAMES[runtime.flavour]} {runtime.runtime}"
    named = architectures_of(config)
    if not named:
        raise InputError(
            f"config.json of {what} names no architectures, by which {name} chooses its code",
            expected="one such as LlamaForCausalLM",
            remedy="Choose a revision that names them.",
        )
    check_generates(config, what)
    served = set(table["generators"]) | set(_through_transformers(runtime))
    if not any(each in served for each in named):
        _refuse(named[0], table, config, name, what)
    _check_model_type(config, table, name, what)


def check_generates(config: Mapping[str, Any], what: str) -> None:
    """Refuse a model whose class is for something else than text that goes on.

    Raises:
        InputError: the class.
    """
    named = architectures_of(config)
    if named and all(_generates_nothing(each) for each in named):
        raise InputError(
            f"{what} generates no text: its class is for embeddings, scores or labels",
            found=named[0],
            expected="a model that generates text",
            remedy="Choose another model: Slipway serves models that generate text.",
        )


def _generates_nothing(architecture: str) -> bool:
    newest = table_of("vllm", NEWEST_VLLM) or {}
    generators, others = newest.get("generators", ()), newest.get("pooling", ())
    return architecture not in generators and (architecture in others or architecture.endswith(NO_TEXT))


def served_through_transformers(config: Mapping[str, Any], runtime: TritonImage) -> bool:
    """Whether the runtime has no class of its own for the model and serves that of transformers."""
    table = table_of(PACKAGES[runtime.flavour], runtime.runtime)
    named = architectures_of(config)
    own = set(table["generators"]) if table else set()
    return not any(each in own for each in named) and any(each in _through_transformers(runtime) for each in named)


def _through_transformers(runtime: TritonImage) -> Sequence[str]:
    if runtime.flavour not in WITH_TRANSFORMERS:
        return ()
    version = VERSION_4 if runtime.runtime.startswith("0.19.") else OLDEST_WITH_VERSION_5
    classes: Sequence[str] = (table_of("transformers", version) or {}).get("through_vllm", ())
    return classes


def _refuse(architecture: str, table: Table, config: Mapping[str, Any], name: str, what: str) -> None:
    code = ". Its own code (auto_map in config.json) is not run" if isinstance(config.get("auto_map"), Mapping) else ""
    raise InputError(
        f"{name} has no class for {what}{code}",
        found=architecture,
        expected=f"one of the {len(table['generators'])} that its list of models has"
        f" (slipway/tasks/engines/upstream/{table['package']}-{table['version']}.json)",
        remedy=f"Choose another model, or an engine kind or image whose runtime has it.{_alike(architecture, table)}",
    )


def _alike(architecture: str, table: Table) -> str:
    """Classes of the same family, for a name that is nearly right."""
    family = architecture.partition("For")[0][:FAMILY_CHARS].lower()
    alike = [each for each in table["generators"] if each.lower().startswith(family)]
    return f" It has {', '.join(alike[:SHOWN])}." if alike else ""


def _check_model_type(config: Mapping[str, Any], table: Table, name: str, what: str) -> None:
    """Refuse a model type that the one version of transformers that a runtime pins does not know."""
    pinned, model_type = table.get("transformers"), config.get("model_type")
    known = table_of("transformers", pinned) if pinned else None
    if known is None or model_type is None:
        return
    if model_type not in known["model_types"] and model_type not in table["config_types"]:
        raise InputError(
            f"transformers {pinned}, which {name} requires, does not know the model type of {what}",
            found=str(model_type),
            expected="one that this version has",
            remedy="Choose engine kind vllm, whose images have version 5, or another model.",
        )


def check_tokenizer_class(tokenizer_config: Mapping[str, Any], runtime: TritonImage, what: str) -> None:
    """Refuse a tokenizer that the transformers of the image cannot load.

    Args:
        tokenizer_config: tokenizer_config.json.
        runtime: what the image contains that loads the tokenizer.
        what: the source, for the message.

    Raises:
        InputError: the class that tokenizer_config.json names.
    """
    pinned = (table_of(PACKAGES[runtime.flavour], runtime.runtime) or {}).get("transformers")
    known, named = table_of("transformers", pinned) if pinned else None, tokenizer_config.get("tokenizer_class")
    if known is None or not isinstance(named, str) or {named, f"{named}Fast"} & set(known["tokenizers"]):
        return
    raise InputError(
        f"transformers {pinned}, with which {NAMES[runtime.flavour]} {runtime.runtime} loads the tokenizer of {what}, "
        "lacks its class",
        found=named,
        expected="one of this version, such as PreTrainedTokenizerFast",
        remedy="Choose a revision whose tokenizer version 4 of transformers wrote, engine kind vllm, or for llmapi a "
        "spec without engine.options.guided_decoding_backend.",
    )
