"""Arguments that several commands share, and access to a command's settings."""

from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.model_names import model_names
from slipway.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

LARGEST = 1e8
"""The largest number that an option takes; as seconds three years, which every clock can wait."""


def finite(value: float | None) -> float | None:
    """The callback of an option that takes a float: a range of click lets `nan` through, which is in none.

    Raises:
        typer.BadParameter: it is not a number, or above LARGEST.
    """
    if value is not None and not value <= LARGEST:
        raise typer.BadParameter(f"{value!r} is not a number up to {LARGEST:.0f}.")
    return value


Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit; default: the spec's.")]
Force = Annotated[bool, typer.Option("--force", help="Make every artifact again, even if it is stored.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        min=1,
        callback=finite,
        help="Stop following after S seconds and exit 124.",
        show_default=False,
    ),
]
AnswerTimeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=1, callback=finite, help="How long one answer may take.")
]
Attempts = Annotated[
    int, typer.Option(metavar="N", min=1, help="How often a prompt is sent while its server is unavailable.")
]
RunId = Annotated[
    str | None, typer.Option(help="Id of the run. If the run exists, follow it instead of starting another.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Name = Annotated[str, typer.Argument(help="Name of the model, as in its spec.", autocompletion=model_names)]


def settings_of(context: typer.Context) -> Settings:
    """The settings that the program's callback prepared for this command."""
    resolve: Callable[[], Settings] = context.obj
    return resolve()
