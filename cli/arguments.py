"""Arguments that several commands share, and access to a command's settings."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

Name = Annotated[str, typer.Argument(help="Name of the model, as in its spec.")]


def settings_of(context: typer.Context) -> Settings:
    """The settings that the program's callback prepared for this command."""
    resolve: Callable[[], Settings] = context.obj
    return resolve()
