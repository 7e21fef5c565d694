"""Processes of serving pods that `python -m slipway.tasks` runs besides steps, and that need no site file.

Pods start them in numbers, and some while a pod stops. So nothing is imported but what the one that runs needs: neither
the contracts nor a client of the store or the cluster.
"""

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

from slipway.tasks.parser import parse

PROCESSES: Mapping[str, str] = {
    "drain": "slipway.tasks.serving.pod.drain",
    "await-ranks": "slipway.tasks.serving.pod.await_ranks",
    "openai": "slipway.tasks.serving.openai_api.process",
    "all-reduce": "slipway.tasks.serving.pod.all_reduce",
}
"""The module of each, with its `add_arguments(parser)` and `run(parsed, environment)`, which returns a summary."""


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the process that the arguments begin with to its end; return a summary for the log."""
    parsed = parse(arguments, {arguments[0]: lambda parser: add_arguments(arguments[0], parser)})
    summary: str = import_module(PROCESSES[parsed.step]).run(parsed, environment)
    return summary


def add_arguments(name: str, parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of a process."""
    import_module(PROCESSES[name]).add_arguments(parser)
