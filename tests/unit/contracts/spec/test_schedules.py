"""What may start a release: a time, or an event of an asset."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from slipway.tasks.contracts.schedule import asset_of, next_due
from tests.fakes.releases import spec

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize("schedule", ["slipway/base", "x-slipway://models/base", "s3://bucket/texts/a.jsonl"])
def test_an_asset_is_no_time(schedule):
    assert asset_of(spec(schedule=schedule).schedule) == schedule
    assert next_due(schedule, NOON) is None


@pytest.mark.parametrize("schedule", ["@daily", "*/5 * * * *", "0 3 * * 1/2"])
def test_a_time_is_no_asset(schedule):
    assert spec(schedule=schedule).schedule == schedule
    assert asset_of(schedule) is None


@pytest.mark.parametrize("schedule", ["daily", "/base", "a b/c", "0 3 * *", "0/5", "@slipway/base"])
def test_what_is_neither_is_refused(schedule):
    with pytest.raises(ValidationError, match="or the name or URI of an asset"):
        spec(schedule=schedule)


@pytest.mark.parametrize("schedule", ["slipway/demo", "x-slipway://models/demo"])
def test_a_model_does_not_follow_itself(schedule):
    with pytest.raises(ValidationError, match="own asset"):
        spec(schedule=schedule)
