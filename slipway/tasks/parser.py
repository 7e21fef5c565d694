"""The parser of `python -m slipway.tasks`: wrong arguments are wrong input."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Never

from slipway.tasks.contracts.errors import InputError

AddArguments = Callable[[argparse.ArgumentParser], None]


class Parser(argparse.ArgumentParser):
    """Treats wrong arguments as wrong input."""

    def error(self, message: str) -> Never:
        """Raise instead of exiting with argparse's own code."""
        raise InputError(message, remedy=self.format_usage().strip())


def parse(
    arguments: Sequence[str], programs: Mapping[str, AddArguments], *, description: str | None = None
) -> argparse.Namespace:
    """Parse the command line; `step` of the result is the name of the program.

    Args:
        arguments: without the command's own name.
        programs: what adds the arguments of each program.
        description: the text of --help.

    Raises:
        InputError: an argument is wrong or missing.
    """
    parser = Parser(
        prog="python -m slipway.tasks", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP", parser_class=Parser)
    for name, add_arguments in programs.items():
        add_arguments(steps.add_parser(name))
    return parser.parse_args(arguments)
