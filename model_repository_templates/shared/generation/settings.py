"""What config.pbtxt tells a model, read once when it is loaded. Computes only."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMPY_BELOW = 2
CHAT_TEMPLATE = ("apply", "none")
TEMPLATE_ARGUMENTS = "chat_template_kwargs"


class SettingsError(Exception):
    """The model cannot be loaded as it is configured; the text says why and what to change."""


@dataclass(frozen=True)
class Limits:
    """What a request may ask for.

    Attributes:
        max_input_tokens: tokens of a prompt.
        max_sequence_tokens: tokens of a prompt and its answer.
        default_max_tokens: tokens of an answer where the client gives no max_tokens.
        max_temperature: the highest that the engine takes.
    """

    max_input_tokens: int
    max_sequence_tokens: int
    default_max_tokens: int
    max_temperature: float = math.inf


@dataclass(frozen=True)
class Settings:
    """Parameters of the model's config.pbtxt, and where its engine lies. `parameters` holds all of them as written."""

    engine: Path
    apply_chat_template: bool
    max_batch_size: int
    max_input_tokens: int
    max_sequence_tokens: int
    parameters: Mapping[str, str]

    def limits(self, default_max_tokens: int, max_temperature: float = math.inf) -> Limits:
        """The limits, with the engine's own default for the length of an answer, and what it takes besides."""
        return Limits(self.max_input_tokens, self.max_sequence_tokens, default_max_tokens, max_temperature)

    def text(self, name: str) -> str:
        """A parameter that only some models have.

        Raises:
            SettingsError: it is missing.
        """
        return _parameter(self.parameters, name)

    def document(self, name: str) -> Mapping[str, Any]:
        """A parameter that is a JSON object.

        Raises:
            SettingsError: it is missing, or something else.
        """
        return document_in(self.parameters, name)

    def template_arguments(self) -> Mapping[str, Any]:
        """Arguments of the chat template for every request; those of a request itself override them."""
        return self.document(TEMPLATE_ARGUMENTS) if TEMPLATE_ARGUMENTS in self.parameters else {}


def read_settings(args: Mapping[str, str]) -> Settings:
    """Settings from what Triton passes to `initialize`.

    A relative engine folder is found from the repository and version there: Triton may have copied the model elsewhere.

    Raises:
        SettingsError: a parameter is missing or wrong, or there is no engine folder.
    """
    parameters = read_parameters(args)
    try:
        return Settings(
            engine=engine_of(args),
            apply_chat_template=CHAT_TEMPLATE.index(_parameter(parameters, "chat_template")) == 0,
            max_batch_size=int(_parameter(parameters, "max_batch_size")),
            max_input_tokens=int(_parameter(parameters, "max_input_tokens")),
            max_sequence_tokens=int(_parameter(parameters, "max_sequence_tokens")),
            parameters=parameters,
        )
    except ValueError as error:
        raise SettingsError(
            f"config.pbtxt has a wrong parameter: {error}; expected numbers, and chat_template "
            f"{' or '.join(CHAT_TEMPLATE)}."
        ) from error


def read_parameters(args: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters of config.pbtxt, from what Triton passes to `initialize`."""
    return {key: value["string_value"] for key, value in json.loads(args["model_config"])["parameters"].items()}


def document_in(parameters: Mapping[str, str], name: str) -> Mapping[str, Any]:
    """A parameter that is a JSON object.

    Raises:
        SettingsError: it is missing, or something else.
    """
    try:
        found = json.loads(_parameter(parameters, name))
    except ValueError as error:
        raise SettingsError(f"config.pbtxt has a wrong parameter {name}: {error}; expected JSON.") from error
    if not isinstance(found, dict):
        raise SettingsError(f"config.pbtxt has a wrong parameter {name}: {found!r}; expected a JSON object.")
    return found


def engine_of(args: Mapping[str, str]) -> Path:
    """The folder of the engine, of which a tokenizer is a part.

    Raises:
        SettingsError: the parameter is missing, or the folder.
    """
    folder = _parameter(read_parameters(args), "engine_folder")
    engine = Path(args["model_repository"]) / args["model_version"] / folder
    if not engine.is_dir():
        raise SettingsError(f"{engine} is not there; expected the engine that the release was built with.")
    return engine


def _parameter(parameters: Mapping[str, str], name: str) -> str:
    try:
        return parameters[name]
    except KeyError as error:
        raise SettingsError(f"config.pbtxt has no parameter {error}; render it from its template again.") from error


def check_numpy(version: str) -> None:
    """Refuse a NumPy that Triton 2.51's Python backend dies of at the first request, after it said it is ready.

    Raises:
        SettingsError: `version` is 2 or newer.
    """
    if int(version.split(".", 1)[0]) >= NUMPY_BELOW:
        raise SettingsError(
            f"numpy is {version}; Triton's Python backend here needs one below {NUMPY_BELOW}. "
            "Install requirements/triton.lock."
        )
