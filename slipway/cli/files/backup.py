"""`slipway export` and `slipway import`: copy models between object stores, or to and from a folder."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli.arguments import settings_of
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError

if TYPE_CHECKING:
    from slipway.cli.settings import Settings
    from slipway.tasks.adapters.store.moving import Move, Place, Replaced

S3 = "s3://"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME]...", help="Models; default: all.", show_default=False)
]
Served = Annotated[
    bool, typer.Option("--only-published", help="Only what pods serve, without the stages that a release reuses.")
]


def export(
    context: typer.Context,
    to: Annotated[str, typer.Option(metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX of the same store.")],
    names: Names = None,
    only_published: Served = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite a channel at PLACE that is not an earlier state.")
    ] = False,
) -> None:
    """Copy channels, the releases they name as live or previous, and their artifacts to PLACE.

    Run it again to continue, or to bring a back-up up to date. Every file is verified against its digest.
    """
    settings = settings_of(context)
    replaced: Replaced = "any" if replace else "earlier"
    _run(_move(_here(settings), place(settings, to), replaced, only_published=only_published), names)


def import_(
    context: typer.Context,
    source: Annotated[str, typer.Option("--from", metavar="PLACE", help="What `slipway export --to` named.")],
    names: Names = None,
    only_published: Served = False,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a channel of this site that differs.")] = False,
) -> None:
    """Copy what `slipway export` wrote into this site's object store. `slipway restore` then makes it serve.

    Refuses to overwrite a channel that differs, even if it is an earlier state, before anything is copied.
    """
    settings = settings_of(context)
    # the site's cluster serves what its channel names
    replaced: Replaced = "any" if replace else "none"
    move = _move(place(settings, source), _here(settings), replaced, only_published=only_published)
    for name in _run(move, names):
        channel = move.target.channel(name)
        if channel and channel[0].live:
            echo(f"next: slipway restore {name}")


def _run(move: "Move", names: list[str] | None) -> Sequence[str]:
    """Copy the models that are named, or all; their names."""
    chosen = names or move.source.names()
    if not chosen:
        raise InputError(
            f"there is no channel at {move.source.layout.root}",
            expected="at least one model that was promoted",
            remedy="Check the place and its prefix.",
        )
    for line in move.run(chosen):
        echo(line)
    return chosen


def _move(source: "Place", target: "Place", replace: "Replaced", *, only_published: bool) -> "Move":
    # boto3 takes half a second to import, which other commands need not wait for
    from slipway.tasks.adapters.clock import SystemClock  # noqa: PLC0415
    from slipway.tasks.adapters.store.moving import ONLY_SERVED, Move  # noqa: PLC0415
    from slipway.tasks.contracts.stored.artifact import STAGES  # noqa: PLC0415

    if source.layout.root == target.layout.root:
        raise InputError(f"{source.layout.root} is both source and target", remedy="Name another place.")
    return Move(source, target, SystemClock(), replace, ONLY_SERVED if only_published else STAGES)


def _here(settings: "Settings") -> "Place":
    from slipway.tasks.adapters.store.moving import Place  # noqa: PLC0415

    return Place(*settings.store())


def place(settings: "Settings", text: str) -> "Place":
    """The place that a person names.

    Raises:
        InputError: it is neither a folder nor in the same object store.
    """
    from slipway.tasks.adapters.store.folder_store import FolderStore  # noqa: PLC0415
    from slipway.tasks.adapters.store.moving import Place  # noqa: PLC0415
    from slipway.tasks.adapters.store.s3 import S3ObjectStore  # noqa: PLC0415
    from slipway.tasks.contracts.base import read_contract  # noqa: PLC0415
    from slipway.tasks.contracts.site.site import ObjectStoreSite  # noqa: PLC0415
    from slipway.tasks.contracts.stored.artifact import Layout  # noqa: PLC0415

    if not text.startswith(S3):
        store = FolderStore(_folder(text))
        return Place(store, Layout(store.root))
    bucket, _, prefix = text.removeprefix(S3).strip("/").partition("/")
    here = settings.site().object_store.model_dump()
    site = read_contract(ObjectStoreSite, {**here, "bucket": bucket, "prefix": prefix}, text)
    return Place(S3ObjectStore(site), Layout(site.root))


def _folder(text: str) -> Path:
    """The folder that a person names.

    Raises:
        InputError: it is an address that Slipway does not write to, or a home folder of nobody.
    """
    if SCHEME.match(text):
        raise InputError(
            f"{text} is not a place for a back-up",
            found=text.partition(":")[0] + "://",
            expected="a folder, or s3://BUCKET/PREFIX of the same store",
            remedy="Name a folder by its path. To use another kind of store, export to a folder and copy that.",
        )
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text} is not a folder", found=error, remedy="Write the whole path.") from error
