"""Prints errors so that the remedy stands out: on a line of its own, on stderr. stdout stays readable for programs."""

import typer

from tasks.contracts.errors import PipelineError


def parts(error: PipelineError) -> tuple[str, str]:
    """What is wrong, and what to do; the second is empty if the error names no remedy or its text was cut."""
    text = str(error)
    if not error.remedy or not text.endswith(error.remedy):
        return text, ""
    return text.removesuffix(error.remedy).rstrip(), error.remedy


def print_error(error: PipelineError, prefix: str = "") -> None:
    """Print an error on stderr; on a terminal the remedy is bold."""
    statement, remedy = parts(error)
    typer.echo(f"{prefix}{statement}", err=True)
    if remedy:
        typer.secho(f"  → {remedy}", err=True, bold=True)
