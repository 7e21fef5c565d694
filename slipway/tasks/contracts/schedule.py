"""Schedules of specs, parsed as in Airflow 3.3, by the same version of croniter. Pure."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})
"""Airflow's own names (airflow.utils.dates.cron_presets, and two that are not cron expressions)."""
CRON_OF_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
"""These are the presets of Airflow's cron_presets."""
MAX_SCHEDULE_CHARS = 100
FIELDS = 5
RANDOM = re.compile(r"(?i)(?<![a-z])r(?![a-z])")
SOME_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def check_schedule(text: str) -> str:
    """Return `text` if Airflow can schedule by it.

    Airflow also takes seconds, years and random times (`R`). A spec does not: its text must mean the same each time it
    is parsed. A time that never comes, such as 30 February, would stop the scheduler at its first use.

    Raises:
        ValueError: it is neither a preset nor a cron expression of five fields, or its time never comes.
    """
    if text in PRESETS:
        return text
    from croniter import CroniterError, croniter  # few specs need it, and every command imports contracts

    expected = f"expected {', '.join(sorted(PRESETS))} or a cron expression of {FIELDS} fields, such as '0 3 * * *'"
    if len(text.split()) != FIELDS or not text.isascii() or RANDOM.search(text):
        raise ValueError(expected)
    try:
        croniter(text, SOME_TIME).get_next(float)
    except (CroniterError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"{error}; {expected}") from error
    return text


Schedule = Annotated[str, StringConstraints(max_length=MAX_SCHEDULE_CHARS), AfterValidator(check_schedule)]
"""A schedule in a spec or a site file."""

ASSET = re.compile(r"[A-Za-z][A-Za-z0-9._:?=&%-]*/[A-Za-z0-9._:/?=&%-]+")
"""The name or URI of one of Airflow's assets. Without the slash a mistyped `daily` would be one."""


def asset_of(schedule: str | None) -> str | None:
    """The asset whose events a schedule follows, such as `slipway/base` or `s3://bucket/data`; None for a time."""
    return schedule if schedule is not None and ASSET.fullmatch(schedule) else None


def model_asset(name: str) -> tuple[str, str]:
    """The name and the URI of the asset of a model.

    The URI is no address in the object store: for `s3:` Airflow would import boto3 with every parse of a DAG file.
    """
    return f"slipway/{name}", f"x-slipway://models/{name}"


def check_trigger(text: str) -> str:
    """Return `text` if it is a time, or the name or URI of an asset.

    Raises:
        ValueError: it is neither.
    """
    try:
        return text if asset_of(text) else check_schedule(text)
    except ValueError as error:
        raise ValueError(f"{error}, or the name or URI of an asset, such as slipway/base-model") from error


def next_due(schedule: str | None, after: datetime) -> datetime | None:
    """The first time after `after` at which a release is due, in UTC; None where no time is set."""
    if schedule is None or asset_of(schedule) or (schedule in PRESETS and schedule not in CRON_OF_PRESETS):
        return None
    from croniter import croniter

    due: datetime = croniter(CRON_OF_PRESETS.get(schedule, schedule), after).get_next(datetime)
    return due
