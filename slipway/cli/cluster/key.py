"""`slipway key`: makes, lists and revokes the API keys of a site's clients."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from slipway.cli.arguments import settings_of
from slipway.cli.console import console_on
from slipway.cli.terminal import echo
from slipway.tasks.contracts import api_keys
from slipway.tasks.contracts.api_keys import ApiKey
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.site.authentication import Authentication
from slipway.tasks.contracts.site.site import Site

if TYPE_CHECKING:
    from slipway.cli.json_documents import KeysDocument
    from slipway.tasks.adapters.kube.key_secret import KeySecret

LONGEST_DAYS = 3650


class Action(StrEnum):
    """What to do with keys."""

    CREATE = "create"
    LIST = "list"
    REVOKE = "revoke"


def key(
    context: typer.Context,
    action: Annotated[Action, typer.Argument(help="create and revoke need a name.")],
    name: Annotated[
        str | None, typer.Argument(help="Who sends the key: what access logs and metrics show.", show_default=False)
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=LONGEST_DAYS, help="create: how long the key is valid; default: for ever."
        ),
    ] = None,
    for_steps: Annotated[
        bool, typer.Option("--for-steps", help="create: also write the key to the Secret that Slipway's steps read.")
    ] = False,
    key_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="revoke: this key alone, of several with the name.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="list: print one JSON document.")] = False,
) -> None:
    """Create, list or revoke API keys of a site with authentication.

    create prints the key, once: the cluster has only its hash. Pods follow within about a minute, without a restart.
    To replace a key, create another one with its name, give it to the client, and revoke the old one by its id.

    Needs rights to read and write the site's Secret of keys.
    """
    settings = settings_of(context)
    site = settings.site()
    authentication = _authentication(site)
    if action is not Action.LIST:
        _check(name)
    # the Kubernetes client takes half a second to import, which `slipway key --help` need not wait for
    from slipway.tasks.adapters.kube.key_secret import KeySecret, put_own_key  # noqa: PLC0415

    cluster, now = settings.cluster(), datetime.now(UTC)
    stored = KeySecret(cluster, authentication.keys_secret)
    if action is Action.LIST and as_json:
        echo(keys_document(stored.keys(), now).model_dump_json(indent=2))
    elif action is Action.LIST:
        console_on().print(key_table(stored.keys(), now))
    elif action is Action.REVOKE:
        for each in revoke(stored, name or "", key_id):
            echo(f"revoked {each.name} {each.id}", err=True)
    else:
        made, secret = create(stored, name or "", days, now)
        echo(f"created {made.name} {made.id}, expires: {made.expires}. The key is not shown again:", err=True)
        echo(secret)
        if for_steps:  # after it was printed: if this fails, the key that is stored is not lost
            put_own_key(cluster, authentication.own_key_secret, site.kubernetes.pipeline_namespace, secret)


def create(stored: "KeySecret", name: str, days: int | None, now: datetime) -> tuple[ApiKey, str]:
    """Add a new key; return what is stored of it, and the key."""
    secret = api_keys.new_secret()
    expires = api_keys.NEVER if days is None else api_keys.time_text(now + timedelta(days=days))
    made = ApiKey(name, api_keys.sha256_of_key(secret), api_keys.time_text(now), expires)
    stored.add(made)
    return made, secret


def revoke(stored: "KeySecret", name: str, key_id: str | None) -> list[ApiKey]:
    """Remove all keys of a name, or the one with this id.

    Raises:
        InputError: there is none.
    """
    removed = stored.remove(lambda each: each.name == name and key_id in (None, each.id))
    if not removed:
        raise InputError(
            f"there is no key {name}{f' {key_id}' if key_id else ''}", remedy="`slipway key list` shows all of them."
        )
    return removed


def keys_document(keys: Sequence[ApiKey], now: datetime) -> "KeysDocument":
    """The keys for a program."""
    from slipway.cli.json_documents import KeysDocument, KeyState  # noqa: PLC0415 - imports Airflow's client

    states = [
        KeyState(name=each.name, id=each.id, created=each.created, expires=each.expires, expired=each.is_expired(now))
        for each in keys
    ]
    return KeysDocument(keys=states)


def key_table(keys: Sequence[ApiKey], now: datetime) -> Table:
    """The keys, without what anybody could send."""
    table = Table("name", "id", "created", "expires")
    for each in keys:
        table.add_row(each.name, each.id, each.created, f"{each.expires}{' (expired)' if each.is_expired(now) else ''}")
    return table


def _authentication(site: Site) -> Authentication:
    if site.serving.authentication == "none":
        raise InputError(
            f"site {site.name} asks for no API keys",
            found="serving.authentication: none",
            remedy="Set serving.authentication: {} in the site file, run `slipway setup`, and release again.",
        )
    return site.serving.authentication


def _check(name: str | None) -> None:
    if name is None or not api_keys.NAME.fullmatch(name):
        raise InputError(
            "a key needs a name",
            found=repr(name) if name else "none",
            expected="lower-case letters, digits, dots, dashes and underscores, at most 63",
            remedy="Give one, as in `slipway key create alice`.",
        )
