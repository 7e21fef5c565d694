"""`slipway migrate`: rewrites a spec for another engine kind and says what changes. Reads files only."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from cli.settings import read_yaml
from tasks.contracts.base import read_contract
from tasks.contracts.migrate import to_llmapi
from tasks.contracts.spec import ReleaseSpec


class Target(StrEnum):
    """Engine kinds that a spec can be moved to."""

    LLMAPI = "llmapi"


def migrate(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="Release spec of kind trt-engine.")],
    to: Annotated[Target, typer.Option(help="Engine kind to move to.")] = Target.LLMAPI,
) -> None:
    """Print SPEC rewritten for another engine kind; on stderr, what changes and what has no equivalent.

    TensorRT-LLM's engines ended with 1.3.0rc21. Comments of the file are not kept.
    """
    document = read_yaml(file)
    migration = to_llmapi(read_contract(ReleaseSpec, document, str(file)), document)
    typer.echo(f"{file}: trt-engine to {to.value}", err=True)
    for line in migration.changes:
        typer.echo(f"  changed: {line}", err=True)
    for line in migration.without_equivalent:
        typer.echo(f"  no equivalent: {line}", err=True)
    typer.echo(yaml.safe_dump(migration.document, sort_keys=False, allow_unicode=True, width=120), nl=False)
