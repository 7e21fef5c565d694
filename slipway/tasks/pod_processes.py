"""Processes of serving pods that `python -m slipway.tasks` runs besides steps, and that need no site file.

Pods start them in numbers, and some while a pod stops, so that they import neither the contracts nor a client of the
store or the cluster: 0.05 in place of 0.4 CPU seconds for `drain`.
"""

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.process import is_running
from slipway.tasks.parser import AddArguments, parse
from slipway.tasks.serving.openai_api import process as openai_process
from slipway.tasks.serving.pod import all_reduce, await_ranks, drain


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run the process that the arguments begin with to its end; return a summary for the log."""
    parsed = parse(arguments, {name: add for name, (add, _) in PROCESSES.items()})
    return PROCESSES[parsed.step][1](parsed, environment)


def _drain(parsed: Namespace, _: Mapping[str, str]) -> str:
    from slipway.tasks.adapters.kube.front import EnvoyFront

    return drain.drain(EnvoyFront(parsed.front), SystemClock(), leave_s=parsed.leave_s, requests_s=parsed.requests_s)


def _await_ranks(parsed: Namespace, _: Mapping[str, str]) -> str:
    return await_ranks.await_ranks(is_running, SystemClock(), at_most_s=parsed.at_most_s)


PROCESSES: Mapping[str, tuple[AddArguments, Callable[[Namespace, Mapping[str, str]], str]]] = {
    "drain": (drain.add_arguments, _drain),
    "await-ranks": (await_ranks.add_arguments, _await_ranks),
    "openai": (openai_process.add_arguments, openai_process.run),
    "all-reduce": (all_reduce.add_arguments, all_reduce.run),
}
"""What adds the arguments of each, and what runs it."""
