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
        programs: what adds the arguments of each program. Only that of the program that is asked for is called.
        description: the text of --help.

    Raises:
        InputError: an argument is wrong or missing.
    """
    parser = Parser(
        prog="python -m slipway.tasks", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP", parser_class=Parser)
    asked = programs.keys() & arguments[:1] or programs
    for name in asked:
        programs[name](steps.add_parser(name))
    return parser.parse_args(arguments)
