"""`python -m cli`, which is the `slipway` command: parses arguments and turns deliberate errors into exit codes."""

import functools
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cli import ask, doctor, documents, migrate, releases, state
from cli.settings import Settings
from tasks.contracts.errors import PipelineError

app = typer.Typer(
    name="slipway",
    help="Take a model from a Hugging Face revision to a promoted Triton service.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback with local variables could show a secret
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    documents.validate,
    documents.schema,
    migrate.migrate,
    doctor.doctor,
    releases.plan,
    releases.release,
    releases.approve,
    releases.rollback,
    state.status,
    state.explain,
    ask.ask,
):
    app.command()(command)


@app.callback()
def options(
    context: typer.Context,
    airflow: Annotated[str | None, typer.Option(help="Airflow's address; else SLIPWAY_AIRFLOW.")] = None,
    site: Annotated[Path | None, typer.Option(help="Site file; else SLIPWAY_SITE.")] = None,
) -> None:
    """Take a model from a Hugging Face revision to a promoted Triton service.

    SLIPWAY_AIRFLOW_TOKEN, or SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD, let the command in; KUBECONFIG names
    the cluster. With neither Airflow nor site given, the stack that `make up` started on this machine is used.
    """
    context.obj = functools.partial(Settings.resolve, os.environ, airflow=airflow, site=site)


def main() -> None:
    """Run the command; a deliberate error is one line on stderr and the exit code of its class."""
    try:
        app()
    except PipelineError as error:
        print(f"slipway: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
