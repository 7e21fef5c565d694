"""`slipway report`: the page of a model as one file, without Airflow."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.arguments import Name, settings_of
from slipway.cli.page_files import write_page
from slipway.cli.runs.channels import read_channel
from slipway.tasks.pages.model import read_model
from slipway.tasks.pages.models import Doing
from slipway.tasks.pages.reading import StoreReader
from slipway.tasks.pages.templates import render

if TYPE_CHECKING:
    from slipway.tasks.adapters.store.object_store import ObjectStore
    from slipway.tasks.contracts.stored.artifact import Layout


def report(
    context: typer.Context,
    name: Name,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where to write the page.")],
) -> None:
    """Write what is live, why, and what the newest candidate's gate found, as one HTML file."""
    settings = settings_of(context)
    write_page(html, page(*settings.store(), name, settings.site().hub.endpoint))


def page(store: "ObjectStore", layout: "Layout", name: str, hub: str) -> str:
    """The page of a model. `hub` is the address that commits are linked to.

    Raises:
        InputError: the model was never released.
        UnavailableError: the object store does not answer.
    """
    read_channel(store, layout, name)
    return render("model.html.j2", model=read_model(name, layout, StoreReader(store)), doing=Doing(), index="", hub=hub)
