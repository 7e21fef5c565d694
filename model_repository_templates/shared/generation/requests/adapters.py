"""LoRA adapters of a release, which requests choose by name. Computes only."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from generation.requests.question import RefusedError
from generation.settings import document_in

MARK = "@"
"""In names that are told to nobody: of one version of an adapter, and of one that is tried."""

PARAMETER = "adapters"
"""Parameter of config.pbtxt: a JSON object that maps each adapter's name to its folder below the engine's. It is absent
without adapters."""


@dataclass(frozen=True)
class Adapter:
    """An adapter as the engine knows it. `number` is its own among all adapters of the release, from 1."""

    name: str
    number: int
    folder: Path


def read_adapters(parameters: Mapping[str, str], engine: Path) -> dict[str, Adapter]:
    """The release's adapters by name; empty where it has none.

    Raises:
        SettingsError: the parameter is wrong.
    """
    if PARAMETER not in parameters:
        return {}
    folders = document_in(parameters, PARAMETER)
    return {name: Adapter(name, number, engine / folders[name]) for number, name in enumerate(sorted(folders), start=1)}


def chosen(name: str | None, adapters: Mapping[str, Adapter]) -> Adapter | None:
    """The adapter of that name; None where the model itself is asked.

    Raises:
        RefusedError: the release has no such adapter.
    """
    if name is None:
        return None
    if (found := adapters.get(name)) is None:  # one look: adapters of a live model come and go
        raise RefusedError(
            f"lora_name is {name[:64]!r}; this release has "
            f"{', '.join(each for each in adapters if MARK not in each) or 'no adapters'}. "
            "Choose one of these, or leave it out."
        )
    return found
