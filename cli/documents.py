"""`slipway schema` and `slipway validate`: what may stand in a spec, and what is wrong in one. Reads files only."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.settings import read_yaml
from tasks.contracts.base import Contract, read_contract
from tasks.contracts.errors import InputError
from tasks.contracts.site import Site
from tasks.contracts.spec import ReleaseSpec

CONTRACTS: dict[str, type[Contract]] = {"Release": ReleaseSpec, "Site": Site}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    site: Annotated[bool, typer.Option("--site", help="Of a site file instead of a release spec.")] = False,
) -> None:
    """Print the JSON Schema of a release spec: what an editor needs to complete and check one."""
    document = {"$schema": DRAFT, **(Site if site else ReleaseSpec).model_json_schema()}
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Release specs or site files.")],
) -> None:
    """Check specs and site files, and print every violation. Exit 65 when one is wrong."""
    wrong = False
    for path in files:
        try:
            found = read_document(path)
        except InputError as error:
            wrong = True
            typer.echo(str(error), err=True)
        else:
            typer.echo(f"{path}: {found} is valid")
    if wrong:
        raise typer.Exit(InputError.exit_code)


def read_document(path: Path) -> str:
    """Check one file; what it is, in words.

    Raises:
        InputError: every violation.
    """
    data: Any = read_yaml(path)
    kind = data.get("kind") if isinstance(data, dict) else None
    contract = read_contract(
        CONTRACTS.get(kind, ReleaseSpec) if isinstance(kind, str) else ReleaseSpec, data, str(path)
    )
    return f"{'site' if isinstance(contract, Site) else 'release'} {getattr(contract, 'name', '')}"
