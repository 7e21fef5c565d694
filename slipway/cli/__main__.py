"""The `slipway` command, also `python -m slipway`: parses arguments and turns deliberate errors into exit codes."""

import builtins
import contextlib
import difflib
import functools
import gc
import importlib
import keyword
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from slipway.cli.commit import commit
from slipway.cli.error_text import deliberate, print_error
from slipway.cli.settings import Settings
from slipway.cli.terminal import echo
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.version import VERSION

PROGRAM = "slipway"
TRACEBACK = "SLIPWAY_TRACEBACK"
"""If this variable is set, an error ends the command with a traceback."""
UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""That of the click which typer uses: from 0.26 on a copy of its own, whose classes have no public names."""
COMMANDS = {
    "validate": "slipway.cli.files.documents",
    "schema": "slipway.cli.files.documents",
    "init": "slipway.cli.runs.init",
    "migrate": "slipway.cli.files.migrate",
    "doctor": "slipway.cli.cluster.doctor",
    "setup": "slipway.cli.cluster.setup",
    "key": "slipway.cli.cluster.key",
    "plan": "slipway.cli.runs.plan",
    "release": "slipway.cli.runs.releases",
    "approve": "slipway.cli.runs.releases",
    "rollback": "slipway.cli.runs.releases",
    "restore": "slipway.cli.runs.releases",
    "adapters": "slipway.cli.runs.adapters",
    "gc": "slipway.cli.cluster.gc",
    "export": "slipway.cli.files.backup",
    "import": "slipway.cli.files.backup",
    "status": "slipway.cli.runs.status",
    "logs": "slipway.cli.runs.one_run",
    "cancel": "slipway.cli.runs.one_run",
    "open": "slipway.cli.runs.one_run",
    "explain": "slipway.cli.runs.explain",
    "report": "slipway.cli.runs.report",
    "ask": "slipway.cli.ask.ask",
    "batch": "slipway.cli.ask.batch",
    "compare": "slipway.cli.ask.compare",
}
"""Module of each command, with its function: see `function_of`."""

TYPER: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,  # a traceback with local variables could show a secret
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def function_of(command: str) -> Callable[..., None]:
    """The function of a command has its name; a name that Python itself uses has an underscore after it there."""
    taken = keyword.iskeyword(command) or hasattr(builtins, command)
    function: Callable[..., None] = getattr(
        importlib.import_module(COMMANDS[command]), f"{command}_" if taken else command
    )
    return function


class Commands(TyperGroup):
    """The commands. A command's module is imported when it runs, so no command waits for the imports of another."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command, in the order of the help text."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command called `cmd_name`; None when there is none."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        one = typer.Typer(**TYPER)
        one.command(cmd_name)(function_of(cmd_name))
        return typer.main.get_command(one)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find the command; the error about an unknown name suggests the closest one."""
        if close := [] if args[0] in COMMANDS else difflib.get_close_matches(args[0], COMMANDS, n=1):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options before the command's name."""
        with _usage_errors_are_input_errors():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Parse the command's own arguments and run it."""
        with _usage_errors_are_input_errors():
            return super().invoke(ctx)


app = typer.Typer(
    name=PROGRAM,
    help="Take a model from a Hugging Face revision to a promoted Triton service.",
    no_args_is_help=True,
    cls=Commands,
    **TYPER | {"add_completion": True},
)


def _print_version(asked: bool) -> None:  # typer passes a callback its value by position
    if asked:
        echo(f"{PROGRAM} {VERSION}{f' (commit {made})' if (made := commit()) else ''}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    airflow: Annotated[str | None, typer.Option(help="Airflow's address; default: SLIPWAY_AIRFLOW.")] = None,
    site: Annotated[Path | None, typer.Option(help="Site file; default: SLIPWAY_SITE.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take a model from a Hugging Face revision to a promoted Triton service.

    Log in to Airflow with SLIPWAY_AIRFLOW_TOKEN, or with SLIPWAY_AIRFLOW_USER and SLIPWAY_AIRFLOW_PASSWORD. KUBECONFIG
    names the cluster. If neither an Airflow nor a site is given, the command uses the stack that `make up` started.
    """
    del version  # its callback has printed it
    gc.freeze()
    gc.enable()
    context.obj = functools.partial(Settings.resolve, os.environ, airflow=airflow, site=site)


@contextlib.contextmanager
def _usage_errors_are_input_errors() -> Iterator[None]:
    """Give usage errors the exit code of every other wrong input instead of click's 2."""
    try:
        yield
    except UsageError as error:
        error.exit_code = InputError.exit_code  # type: ignore[attr-defined]  # read from the instance
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
