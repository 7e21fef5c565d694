"""Triton model repositories: rendered from templates, and checked with Triton's own protobuf."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError, UndefinedError

from slipway.tasks.contracts.engine.engine_kinds import EngineKind
from slipway.tasks.contracts.errors import InputError

TEMPLATE_SUFFIX = ".j2"
CONFIG = "config.pbtxt"
NAMED_MODEL = "model"
PREFIXED_MODEL = "model_"
"""A template folder `model` becomes the release's own model `<name>`, and `model_x` becomes `<name>_x`, so that several
releases fit into one repository. Any other folder keeps its name."""

FIX = "Fix the template."
LEFTOVER = re.compile(r"\$\{[^}]*\}|\{\{|\{%")
"""The opening marks of Jinja2, and the `${...}` that Triton's own tools fill. Closing marks also occur in JSON."""


def render(templates: Path, kind: EngineKind, values: Mapping[str, Any], out: Path) -> list[str]:
    """Write the repository of a kind to `out` and check every config.pbtxt in it.

    Files that end in `.j2` are Jinja2 templates, in which an unknown value is an error; every other file is copied,
    including one that a linked folder shares between models. The folder `model` becomes `values["name"]`.

    Args:
        templates: folder with one folder per engine kind.
        kind: the engine kind.
        values: the result of EngineMaker.template_values, which includes `name`.
        out: existing folder; owned by the caller. It may hold other models already.

    Returns:
        Names of the models.

    Raises:
        InputError: `out` has a model of the same name; or a template lacks a value, leaves template marks behind, or
            renders a config.pbtxt that Triton would reject.
    """
    source = templates / kind
    environment = Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)  # noqa: S701 - protobuf text is not HTML
    existing = {folder.name for folder in out.iterdir()}
    for file in template_files(source):
        folder, *rest = file.relative_to(source).parts
        model = _model_name(folder, str(values["name"]))
        if model in existing:
            raise InputError(
                f"the repository already has a model {model}",
                expected="every model once",
                remedy="Choose another name.",
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
        InputError: a model has no config.pbtxt or no version folder, the file does not parse, or its name
            differs from its folder's, or it leaves something out; or there is no model.
    """
    models = sorted(folder for folder in repository.iterdir() if folder.is_dir())
    if not models:
        raise InputError("the repository has no model", expected="a folder with config.pbtxt and a version", remedy=FIX)
    for model in models:
        _check_model(model)
    return [model.name for model in models]


def _check_model(model: Path) -> None:
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    where = f"{model.name}/{CONFIG}"
    try:
        config = text_format.Parse((model / CONFIG).read_text(encoding="utf-8"), ModelConfig())
    except FileNotFoundError as error:
        raise InputError(f"{where} is missing", expected="one for every model", remedy=FIX) from error
    except text_format.ParseError as error:
        raise InputError(f"{where} is not a model configuration of Triton: {error}", remedy=FIX) from error
    if config.name != model.name:
        raise InputError(
            f"{where} does not name the model as its folder does",
            found=repr(config.name),
            expected=repr(model.name),
            remedy=FIX,
        )
    if missing := [name for name, is_there in _needed(config).items() if not is_there]:
        raise InputError(
            f"{where} leaves out {', '.join(missing)}",
            expected="a complete configuration, for Triton is told not to complete it",
            remedy=FIX,
        )
    if not any(folder.is_dir() and folder.name.isdigit() for folder in model.iterdir()):
        raise InputError(f"{model.name} has no version folder", expected=f"{model.name}/1", remedy=FIX)


def _needed(config: Any) -> dict[str, bool]:
    """What Triton would otherwise have to complete, and whether the configuration has it."""
    tensors = [*config.input, *config.output]
    return {
        "backend": bool(config.backend or config.platform),
        "input": bool(config.input),
        "output": bool(config.output),
        "data_type and dims of each tensor": all(tensor.data_type and tensor.dims for tensor in tensors),
    }


def _rendered(environment: Environment, file: Path, values: Mapping[str, Any]) -> str:
    try:
        text = environment.from_string(file.read_text(encoding="utf-8")).render(values)
    except UndefinedError as error:
        raise InputError(
            f"template {file.name} needs a value that the engine does not give ({error})",
            expected=f"one of {', '.join(sorted(values))}",
            remedy=FIX,
        ) from error
    except TemplateError as error:
        raise InputError(f"template {file.name} is not valid Jinja2: {error}", remedy=FIX) from error
    if leftover := LEFTOVER.search(text):
        raise InputError(
            f"the rendered template {file.name} still has template marks",
            found=repr(leftover.group()),
            remedy="Give the value, or fix the template.",
        )
    return text


def template_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a kind's templates, including linked folders, in order of their paths.

    Files that tools leave there (names that begin with a dot, compiled Python) are left out.

    Raises:
        InputError: there is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"there are no templates for engine kind {folder.name}", expected=f"a folder {folder}")
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
