"""Triton model repositories: rendered from templates, and proven to be what Triton's own protobuf accepts."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, UndefinedError

from tasks.contracts.errors import InputError
from tasks.contracts.spec import EngineKind

TEMPLATE_SUFFIX = ".j2"
CONFIG = "config.pbtxt"
NAMED_MODEL = "model"
PREFIXED_MODEL = "model_"
"""A template folder `model` becomes the release's own model `<name>`, and `model_x` becomes `<name>_x`, so that several
releases can live in one repository. Any other keeps its name."""

LEFTOVER = re.compile(r"\$\{[^}]*\}|\{\{|\{%")
"""What a template begins with: in Jinja2, and the `${...}` that Triton's own tools fill. Ends alone also close JSON."""


def render(templates: Path, kind: EngineKind, values: Mapping[str, Any], out: Path) -> list[str]:
    """Write the repository of a kind to `out` and check every config.pbtxt in it.

    Files that end in `.j2` are Jinja2 templates, in which an unknown value is an error; every other file is copied as
    it is, also one that a linked folder shares between models. The folder `model` becomes `values["name"]`.

    Args:
        templates: folder with one folder per engine kind.
        kind: which of them.
        values: of Engine.template_values, among them `name`.
        out: existing folder; owned by the caller. Other models may be there already.

    Returns:
        Names of the models.

    Raises:
        InputError: a model of the same name is there already; or a template asks for a value that is not there, leaves
            a mark of a template behind, or makes a config.pbtxt that Triton would refuse.
    """
    source = templates / kind
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701 - protobuf text is no HTML
    there = {folder.name for folder in out.iterdir()}
    for file in template_files(source):
        folder, *rest = file.relative_to(source).parts
        model = _model_name(folder, str(values["name"]))
        if model in there:
            raise InputError(
                f"the repository has a model {model} already; expected every model once. Choose another name."
            )
        target = out.joinpath(model, *rest)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == TEMPLATE_SUFFIX:
            target.with_suffix("").write_text(_rendered(environment, file, values), encoding="utf-8")
        else:
            target.write_bytes(file.read_bytes())
    return check_repository(out)


def check_repository(repository: Path) -> list[str]:
    """Parse every model's config.pbtxt with Triton's own protobuf.

    Returns:
        Names of the models.

    Raises:
        InputError: a model has no config.pbtxt or no version folder, the file does not parse, or it names another
            model than its folder does; or there is no model at all.
    """
    models = sorted(folder for folder in repository.iterdir() if folder.is_dir())
    if not models:
        raise InputError("the repository holds no model; expected a folder with config.pbtxt and a version.")
    for model in models:
        _check_model(model)
    return [model.name for model in models]


def _check_model(model: Path) -> None:
    from google.protobuf import text_format  # type: ignore[import-untyped]
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    where = f"{model.name}/{CONFIG}"
    try:
        config = text_format.Parse((model / CONFIG).read_text(encoding="utf-8"), ModelConfig())
    except FileNotFoundError as error:
        raise InputError(f"{where} is missing; every model of a repository needs one. Mend the template.") from error
    except text_format.ParseError as error:
        raise InputError(f"{where} is no model configuration of Triton: {error}. Mend the template.") from error
    if config.name != model.name:
        raise InputError(
            f"{where} names the model {config.name!r}, its folder is {model.name!r}; Triton wants them equal. "
            "Mend the template."
        )
    if not any(folder.is_dir() and folder.name.isdigit() for folder in model.iterdir()):
        raise InputError(f"{model.name} has no version folder; expected {model.name}/1. Mend the template.")


def _rendered(environment: Environment, file: Path, values: Mapping[str, Any]) -> str:
    try:
        text = environment.from_string(file.read_text(encoding="utf-8")).render(values)
    except UndefinedError as error:
        raise InputError(
            f"template {file.name}: {error}; the engine gives {', '.join(sorted(values))}. Mend the template."
        ) from error
    except TemplateError as error:
        raise InputError(f"template {file.name} is no Jinja2: {error}. Mend the template.") from error
    if leftover := LEFTOVER.search(text):
        raise InputError(
            f"template {file.name} leaves {leftover.group()!r} behind; expected text without marks of a template. "
            "Give the value or mend the template."
        )
    return text


def template_files(folder: Path) -> Iterator[Path]:
    """Files below a kind's templates, those of linked folders included, in order of their paths.

    What tools leave beside them (names that begin with a dot, compiled Python) does not count.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"there are no templates for engine kind {folder.name}; expected {folder.name}/ among them.")
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_file():
            yield entry
        else:
            yield from template_files(entry)


def _model_name(folder: str, name: str) -> str:
    if folder == NAMED_MODEL:
        return name
    return f"{name}_{folder.removeprefix(PREFIXED_MODEL)}" if folder.startswith(PREFIXED_MODEL) else folder
