"""What config.pbtxt tells a model, read once when it is loaded. Computes only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUMPY_BELOW = 2
CHAT_TEMPLATE = ("apply", "none")


class SettingsError(Exception):
    """The model cannot be loaded as it is configured; the text says why and what to change."""


@dataclass(frozen=True)
class Limits:
    """Tokens a request may have. `default_max_tokens` holds where the client gives no max_tokens."""

    max_input_tokens: int
    max_sequence_tokens: int
    default_max_tokens: int


@dataclass(frozen=True)
class Settings:
    """Parameters of the model's config.pbtxt, and where its engine lies."""

    engine: Path
    apply_chat_template: bool
    max_batch_size: int
    max_input_tokens: int
    max_sequence_tokens: int
    scheduler: Mapping[str, Any]
    properties: Mapping[str, Any]

    def limits(self, default_max_tokens: int) -> Limits:
        """The limits, with the engine's own default for the length of an answer."""
        return Limits(self.max_input_tokens, self.max_sequence_tokens, default_max_tokens)


def read_settings(args: Mapping[str, str]) -> Settings:
    """Settings from what Triton passes to `initialize`.

    The engine is found from the repository and version there: Triton may have copied the model elsewhere.

    Raises:
        SettingsError: a parameter is missing or wrong, or there is no engine folder.
    """
    parameters = {key: value["string_value"] for key, value in json.loads(args["model_config"])["parameters"].items()}
    version = Path(args["model_repository"]) / args["model_version"]
    try:
        settings = Settings(
            engine=version / parameters["engine_folder"],
            apply_chat_template=CHAT_TEMPLATE.index(parameters["chat_template"]) == 0,
            max_batch_size=int(parameters["max_batch_size"]),
            max_input_tokens=int(parameters["max_input_tokens"]),
            max_sequence_tokens=int(parameters["max_sequence_tokens"]),
            scheduler=json.loads(parameters["scheduler"]),
            properties=json.loads(parameters["properties"]),
        )
    except KeyError as error:
        raise SettingsError(f"config.pbtxt has no parameter {error}; render it from its template again.") from error
    except ValueError as error:
        raise SettingsError(
            f"config.pbtxt has a wrong parameter: {error}; expected numbers, JSON, and chat_template "
            f"{' or '.join(CHAT_TEMPLATE)}."
        ) from error
    if not settings.engine.is_dir():
        raise SettingsError(f"{settings.engine} is not there; expected the engine that the release was built with.")
    return settings


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
