"""The command line of `python -m slipway.tasks`."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from slipway.tasks.contracts.base import parse_json, read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.step_kinds import STEP_KINDS
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.adapters import SPEC
from slipway.tasks.contracts.stored.release import PREVIOUS
from slipway.tasks.document_files import read_contract_file
from slipway.tasks.parser import AddArguments
from slipway.tasks.parser import parse as parse_by
from slipway.tasks.pod_processes import ADD_ARGUMENTS

FETCH_REPOSITORY = "fetch-repository"
FOLLOW_ADAPTERS = "follow-adapters"
LEAD = "lead"
EXPORT_METRICS = "export-metrics"
METRICS_PORT = 9108


def parse(arguments: Sequence[str], environment: Mapping[str, str], *, description: str | None) -> argparse.Namespace:
    """Parse the command line; `step` of the result is the name of the step, or of a pod's process.

    Raises:
        InputError: an argument is wrong or missing, or there is no site file.
    """
    names = dict.fromkeys((*STEP_KINDS, *ADDED))
    programs = {name: partial(_add_site, ADDED.get(name, _add_step), environment) for name in names}
    parsed = parse_by(arguments, {**programs, **ADD_ARGUMENTS}, description=description)
    if parsed.step in programs and parsed.site is None:
        raise InputError("there is no site file", remedy="Give --site, or set SLIPWAY_SITE to the site file.")
    return parsed


def _add_site(add_arguments: AddArguments, environment: Mapping[str, str], step: argparse.ArgumentParser) -> None:
    step.add_argument("--site", type=Path, default=environment.get("SLIPWAY_SITE") or None, help="site file")
    add_arguments(step)


def _add_release(step: argparse.ArgumentParser) -> None:
    step.add_argument("--release", required=True, help="URI of release.json")
    step.add_argument("--concurrency", type=int, metavar="N", help="replaces object_store.transfer.connections")
    step.add_argument("--bytes-per-s", type=int, metavar="N", help="replaces object_store.transfer.bytes_per_s")


def _add_plan_request(step: argparse.ArgumentParser) -> None:
    either = _add_request(step)
    either.add_argument("--spec", help="file of a release spec, or its JSON text")
    step.add_argument("--revision", help="overrides the spec's source.revision")
    step.add_argument("--force", action="store_true", help="make every artifact again")
    step.add_argument("--look", type=Path, metavar="FILE", help="write the plan to FILE, and nothing to the store")


def _add_revert_request(step: argparse.ArgumentParser) -> None:
    either = _add_request(step)
    either.add_argument("--name", help="the model")
    step.add_argument("--reason", default="", help="recorded in the channel's history")
    step.add_argument("--to", default=PREVIOUS, help="which release takes the traffic: its id, previous or live")


def _add_adapters_request(step: argparse.ArgumentParser) -> None:
    either = _add_request(step)
    either.add_argument("--spec", help="file of a release spec, or its JSON text")
    step.add_argument("--to", choices=(SPEC, PREVIOUS), default=SPEC, help="the spec's adapters, or those before")
    step.add_argument("--reason", default="", help="kept with the adapters")


def _add_drill_request(step: argparse.ArgumentParser) -> None:
    either = _add_request(step)
    either.add_argument("--name", help="the model")
    step.add_argument("--request-rate", type=float, metavar="R", help="requests per second; as rollout.drill")
    step.add_argument("--seconds", type=int, metavar="S", help="before, between and after the flips; as rollout.drill")


def _add_retention_request(step: argparse.ArgumentParser) -> None:
    either = step.add_mutually_exclusive_group(required=True)
    either.add_argument("--request", help="URI of the request document; replaces every other argument")
    either.add_argument("--run", help="identity of this run: [A-Za-z0-9._-]")
    step.add_argument("--dry-run", action="store_true", help="report, and delete nothing")


def _add_request(step: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Add the two ways to request a run: one document in a pod, or its parts by hand."""
    either = step.add_mutually_exclusive_group(required=True)
    either.add_argument("--request", help="URI of the request document; replaces every other argument")
    step.add_argument("--run", help="identity of this run: [A-Za-z0-9._-]")
    return either


def _add_fetch_repository(step: argparse.ArgumentParser) -> None:
    _add_release(step)
    step.add_argument("--to", type=Path, required=True, help="folder that becomes the model repository")
    step.add_argument("--adapters", type=Path, help="folder of the adapters that are added to the live release")


def _add_follow_adapters(step: argparse.ArgumentParser) -> None:
    _add_release(step)
    step.add_argument("--adapters", type=Path, required=True, help="folder of the adapters")


def _add_lead(step: argparse.ArgumentParser) -> None:
    from slipway.tasks.serving.pod import lead

    lead.add_arguments(step)


def _add_export_metrics(step: argparse.ArgumentParser) -> None:
    step.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod's own
    step.add_argument("--port", type=int, default=METRICS_PORT)


def _add_step(step: argparse.ArgumentParser) -> None:
    _add_release(step)
    step.add_argument("--run", help="identity of this run (default: that of the release's newest plan)")


ADDED: Mapping[str, AddArguments] = {
    "plan": _add_plan_request,
    "revert": _add_revert_request,
    "drill": _add_drill_request,
    "fetch-adapters": _add_adapters_request,
    "sign-adapters": _add_adapters_request,
    "load-adapters": _add_adapters_request,
    "retention": _add_retention_request,
    FETCH_REPOSITORY: _add_fetch_repository,
    FOLLOW_ADAPTERS: _add_follow_adapters,
    LEAD: _add_lead,
    EXPORT_METRICS: _add_export_metrics,
}
"""What adds the arguments of a step or a process; every other step has those of `_add_step`."""


def by_hand(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The fields of a step's request as the command line gives them, and the name that messages give their source.

    Raises:
        InputError: the spec cannot be read.
    """
    return REQUESTED[parsed.step](parsed)


def _plan_fields(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    spec, source = _read_spec(parsed.spec)
    return {"spec": spec, "run": parsed.run, "revision": parsed.revision, "force": parsed.force}, source


def _read_spec(argument: str) -> tuple[ReleaseSpec, str]:
    """Return the spec, and the name that messages give it."""
    if argument.lstrip().startswith("{"):
        return read_contract(ReleaseSpec, parse_json(argument, "--spec"), "--spec"), "--spec"
    return read_contract_file(ReleaseSpec, Path(argument)), argument


def _revert_fields(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    return {"name": parsed.name, "run": parsed.run, "reason": parsed.reason, "to": parsed.to}, parsed.step


def _adapters_fields(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    spec, source = _read_spec(parsed.spec)
    return {"spec": spec, "run": parsed.run, "to": parsed.to, "reason": parsed.reason}, source


def _drill_fields(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    settings = {"request_rate": parsed.request_rate, "seconds": parsed.seconds}
    stated = {name: value for name, value in settings.items() if value is not None}
    return {"name": parsed.name, "run": parsed.run, "settings": stated}, parsed.step


def _retention_fields(parsed: argparse.Namespace) -> tuple[dict[str, Any], str]:
    return {"run": parsed.run, "dry_run": parsed.dry_run}, parsed.step


REQUESTED: Mapping[str, Callable[[argparse.Namespace], tuple[dict[str, Any], str]]] = {
    "plan": _plan_fields,
    "revert": _revert_fields,
    "drill": _drill_fields,
    "fetch-adapters": _adapters_fields,
    "sign-adapters": _adapters_fields,
    "load-adapters": _adapters_fields,
    "retention": _retention_fields,
}
"""What reads the request of a step that has no release."""
