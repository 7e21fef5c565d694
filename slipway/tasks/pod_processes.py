"""Processes of serving pods that `python -m slipway.tasks` runs besides steps, and that need no site file.

Pods start them in numbers, and some while a pod stops. So nothing is imported but what the one that runs needs, and for
none of them the documents of a release or a client of the store or the cluster.
"""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module

from slipway.tasks.parser import AddArguments, parse

PROCESSES: Mapping[str, str] = {
    "drain": "slipway.tasks.serving.pod.drain",
    "await-ranks": "slipway.tasks.serving.pod.await_ranks",
    "openai": "slipway.tasks.serving.openai_api.process",
    "all-reduce": "slipway.tasks.serving.pod.all_reduce",
}
"""The module of each, with its `add_arguments(parser)` and `run(parsed, environment)`, which returns a summary."""


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the process that the arguments begin with to its end; return a summary for the log."""
    parsed = parse(arguments, ADD_ARGUMENTS)
    summary: str = import_module(PROCESSES[parsed.step]).run(parsed, environment)
    return summary


def _add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a process."""
    import_module(PROCESSES[name]).add_arguments(parser)


ADD_ARGUMENTS: Mapping[str, AddArguments] = {name: partial(_add_arguments, name) for name in PROCESSES}
"""What adds the arguments of each."""
