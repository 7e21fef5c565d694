"""`slipway schema` and `slipway validate`: describe and check specs and site files. They only read files."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, RootModel

from slipway.cli.error_text import print_error
from slipway.cli.terminal import echo
from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.documents import parse_document, positions_in
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import excerpt
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.fleet import read_specs
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.document_files import read_regular_file

KINDS = ("Release", "Site")
FOUND_CHARS = 60


class Printed(StrEnum):
    """Commands that print a document with --json."""

    STATUS = "status"
    EXPLAIN = "explain"
    KEY = "key"
    DOCTOR = "doctor"
    PLAN = "plan"
    RELEASE = "release"
    COMPARE = "compare"
    GC = "gc"


DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    site: Annotated[bool, typer.Option("--site", help="Print the schema of a site file instead.")] = False,
    of: Annotated[
        Printed | None, typer.Option(help="Print the schema of what this command prints with --json instead.")
    ] = None,
) -> None:
    """Print the JSON Schema of a release spec, for an editor to complete and check it."""
    described = _printed()[of] if of else Site if site else ReleaseSpec
    document = {"$schema": DRAFT, **described.model_json_schema(mode="serialization" if of else "validation")}
    echo(json.dumps(document, indent=2, ensure_ascii=False))


def _printed() -> dict[Printed, type[BaseModel]]:
    from slipway.cli import json_documents  # noqa: PLC0415 - imports Airflow's client, which a spec's schema need not wait for
    from slipway.tasks.contracts.fit.forecast import Preview  # noqa: PLC0415

    return {
        Printed.STATUS: json_documents.StatusDocument,
        Printed.EXPLAIN: RootModel[json_documents.ExplainDocument | json_documents.FleetDocument],
        Printed.KEY: json_documents.KeysDocument,
        Printed.DOCTOR: json_documents.DoctorDocument,
        Printed.PLAN: RootModel[Preview | json_documents.FleetPlanDocument],
        Printed.RELEASE: json_documents.ReleaseDocument,
        Printed.COMPARE: json_documents.CompareDocument,
        Printed.GC: json_documents.GcDocument,
    }


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Release specs or site files.")],
) -> None:
    """Check specs and site files, and print every violation. Exit 65 if a file is invalid."""
    invalid = False
    for path in files:
        try:
            description = checked(path)
        except InputError as error:
            invalid = True
            print_error(error)
        else:
            echo(f"{path}: {description} is valid")
    if invalid:
        raise typer.Exit(InputError.exit_code)


def checked(path: Path) -> str:
    """Check one file and return its kind and name.

    Raises:
        InputError: every violation, or a kind that does not exist.
    """
    text = read_regular_file(path)
    data = parse_document(text, str(path))
    kind = data.get("kind") if isinstance(data, dict) else "Release"
    if kind not in KINDS:
        raise InputError(
            f"{path}: kind",
            found="none" if kind is None else excerpt(repr(kind), FOUND_CHARS),
            expected=" or ".join(KINDS),
            remedy="Set kind: Release in a release spec, or kind: Site in a site file.",
        )
    if kind == "Site":
        return f"site {read_contract(Site, data, str(path), positions_in(text)).name}"
    file = read_specs(data, str(path), positions_in(text))
    members = ", ".join(model.name for model in file.models)
    return f"fleet {file.name} of {members}" if file.is_fleet else f"release {file.name}"
