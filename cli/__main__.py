"""The `slipway` command, also `python -m cli`: parses arguments and turns deliberate errors into exit codes."""

import contextlib
import difflib
import functools
import gc
import importlib
import keyword
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from cli.error_text import deliberate, print_error
from cli.settings import Settings
from tasks.contracts.errors import InputError

PROGRAM = "slipway"
TRACEBACK = "SLIPWAY_TRACEBACK"
"""If this variable is set, an error ends the command with a traceback."""
LARGEST = 1e8
"""The largest value of an option in seconds: three years, which every clock can wait."""
COMMANDS = {
    "validate": "cli.files.documents",
    "schema": "cli.files.documents",
    "migrate": "cli.files.migrate",
    "doctor": "cli.cluster.doctor",
    "setup": "cli.cluster.setup",
    "plan": "cli.runs.plan",
    "release": "cli.runs.releases",
    "approve": "cli.runs.releases",
    "rollback": "cli.runs.releases",
    "restore": "cli.runs.releases",
    "gc": "cli.cluster.gc",
    "export": "cli.files.backup",
    "import": "cli.files.backup",
    "status": "cli.runs.state",
    "explain": "cli.runs.state",
    "ask": "cli.ask.ask",
    "batch": "cli.ask.batch",
    "compare": "cli.ask.compare",
}
"""Module of each command, with a function of the same name; a keyword of Python has an underscore after it there."""

TYPER: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,  # a traceback with local variables could show a secret
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Commands(TyperGroup):
    """The commands. A command's module is imported when it runs, so no command waits for the imports of another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of the help text."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command called `cmd_name`; None when there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        one = typer.Typer(**TYPER)
        function = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        one.command(cmd_name)(getattr(importlib.import_module(COMMANDS[cmd_name]), function))
        command = typer.main.get_command(one)
        for parameter in command.params:
            if isinstance(parameter.type, click.FloatRange):
                parameter.type = _Finite(parameter.type)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error about an unknown name suggests the closest one."""
        if close := [] if args[0] in COMMANDS else difflib.get_close_matches(args[0], COMMANDS, n=1):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the options before the command's name."""
        with _usage_errors_are_input_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's own arguments and run it."""
        with _usage_errors_are_input_errors():
            return super().invoke(ctx)


class _Finite(click.FloatRange):
    """A range without `nan`, which click lets through because it is neither below nor above anything."""

    def __init__(self, given: click.FloatRange) -> None:
        super().__init__(given.min, LARGEST if given.max is None else given.max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if number is not None and not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


app = typer.Typer(
    name=PROGRAM,
    help="Take a model from a Hugging Face revision to a promoted Triton service.",
    no_args_is_help=True,
    cls=Commands,
    **TYPER,
)


@app.callback()
def options(
    context: typer.Context,
    airflow: Annotated[str | None, typer.Option(help="Airflow's address; default: SLIPWAY_AIRFLOW.")] = None,
    site: Annotated[Path | None, typer.Option(help="Site file; default: SLIPWAY_SITE.")] = None,
) -> None:
    """Take a model from a Hugging Face revision to a promoted Triton service.

    Log in to Airflow with SLIPWAY_AIRFLOW_TOKEN, or with SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD. KUBECONFIG
    names the cluster. If neither an Airflow nor a site is given, the command uses the stack that `make up` started.
    """
    gc.freeze()
    gc.enable()
    context.obj = functools.partial(Settings.resolve, os.environ, airflow=airflow, site=site)


@contextlib.contextmanager
def _usage_errors_are_input_errors() -> Iterator[None]:
    """Give usage errors the exit code of every other wrong input instead of click's 2."""
    try:
        yield
    except click.UsageError as error:
        error.exit_code = InputError.exit_code  # type: ignore[misc]  # click reads the instance's
        raise


def main() -> None:
    """Run the command; an error goes to stderr, and its class gives the exit code."""
    # Importing makes objects that stay: looking for garbage among them took 0.05 to 0.1 s. `options` ends this.
    gc.disable()
    try:
        with _everything_is_written():
            app(prog_name=PROGRAM)
    except Exception as unexpected:
        if os.environ.get(TRACEBACK):
            raise
        error = deliberate(unexpected)
        print_error(error, f"{PROGRAM}: ")
        sys.exit(error.exit_code)
    finally:
        gc.enable()


@contextlib.contextmanager
def _everything_is_written() -> Iterator[None]:
    """Write what is still buffered: at its own end the interpreter could not say any more that a disk is full."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


if __name__ == "__main__":
    main()
