"""`slipway migrate`: rewrites a spec for another engine kind and lists what changes. It only reads files."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from slipway.cli.terminal import echo
from slipway.tasks.contracts.documents import parse_document, positions_in
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.fleet import read_specs
from slipway.tasks.contracts.spec.migrate import migrate as rewrite
from slipway.tasks.contracts.spec.migrate import migrate_fleet
from slipway.tasks.document_files import read_regular_file


class Target(StrEnum):
    """Engine kinds that a spec can be migrated to."""

    TRT_ENGINE = "trt-engine"
    LLMAPI = "llmapi"
    VLLM = "vllm"


def migrate(
    file: Annotated[Path, typer.Argument(metavar="SPEC", help="Release spec of a kind that runs on GPUs.")],
    to: Annotated[Target, typer.Option(help="Engine kind to migrate to.")] = Target.VLLM,
) -> None:
    """Print SPEC rewritten for another engine kind. Changes, and fields without an equivalent, go to stderr.

    What clients would notice is refused. trt-engine and llmapi end with Triton 26.07, the last image with TensorRT-LLM.
    Comments in the file are lost.
    """
    text = read_regular_file(file)
    document = parse_document(text, str(file))
    if isinstance(document, dict) and document.get("kind") == "Site":
        raise InputError(
            f"{file} cannot be migrated", found="a site file", expected="a release spec", remedy="Name a release spec."
        )
    file_of_spec = read_specs(document, str(file), positions_in(text))
    models = {model.name: model for model in file_of_spec.models}
    if file_of_spec.is_fleet:
        rewritten, migrations = migrate_fleet(file_of_spec.models, document, to.value)
    else:
        migrations = {file_of_spec.name: rewrite(models[file_of_spec.name], document, to.value)}
        rewritten = migrations[file_of_spec.name].document
    for name, migration in migrations.items():
        of_member = f" {name}:" if file_of_spec.is_fleet else ""
        echo(f"{file}:{of_member} {models[name].engine.kind} to {to.value}", err=True)
        for line in migration.changes:
            echo(f"  changed: {line}", err=True)
        for line in migration.without_equivalent:
            echo(f"  no equivalent: {line}", err=True)
    echo(yaml.safe_dump(rewritten, sort_keys=False, allow_unicode=True, width=120), nl=False)
