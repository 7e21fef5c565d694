"""The adapter to Great Expectations 1.24: validates columns of numbers, and returns plain values.

A batch is validated directly: storing the result of a ValidationDefinition fails on a NumPy boolean (1.24.1, measured),
so results are turned into plain values here.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipway.tasks.adapters.importing import at_first_use, importing


@dataclass(frozen=True)
class Check:
    """A column of numbers and the range its values, or one quantile of it, must lie in; None for an open end."""

    name: str
    values: Sequence[float]
    at_least: float | None
    at_most: float | None
    quantile: float | None = None


@dataclass(frozen=True)
class Checked:
    """The outcome of one check, and Great Expectations' own result document."""

    success: bool
    observed: float
    document: dict[str, Any]


def validate(checks: Sequence[Check]) -> list[Checked]:
    """Validate each check as an expectation suite over its own table. Values must be present and finite."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # great_expectations reads it when it is imported
    at_first_use("scipy.stats")  # 0.7 s of a CPU, for expectations that gate does not use
    with importing():
        import great_expectations as gx
        import pandas as pd
        from great_expectations.data_context.types import base

    base.logger.setLevel(logging.WARNING)  # it sets its own level, and names a folder for each look at its settings
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = base.ProgressBarsConfig(globally=False)
    source = context.data_sources.add_pandas("measured")
    results = []
    for number, check in enumerate(checks):
        batch = source.add_dataframe_asset(f"{number}").add_batch_definition_whole_dataframe("whole")
        frame = pd.DataFrame({check.name: list(check.values)})
        suite = gx.ExpectationSuite(name=check.name, expectations=[_expectation(gx, check)])
        result = batch.get_batch(batch_parameters={"dataframe": frame}).validate(suite)
        results.append(_plain(result))
    return results


def _expectation(gx: Any, check: Check) -> Any:
    if check.quantile is None:
        return gx.expectations.ExpectColumnMeanToBeBetween(
            column=check.name, min_value=check.at_least, max_value=check.at_most
        )
    return gx.expectations.ExpectColumnQuantileValuesToBeBetween(
        column=check.name,
        quantile_ranges={"quantiles": [check.quantile], "value_ranges": [[check.at_least, check.at_most]]},
    )


def _plain(result: Any) -> Checked:
    document = _builtin(result.results[0].to_json_dict())
    observed = document["result"]["observed_value"]
    if isinstance(observed, dict):
        observed = observed["values"][0]
    return Checked(bool(result.success), float(observed), document)


def _builtin(value: Any) -> Any:
    """The same document without NumPy's types, which JSON does not know."""
    if isinstance(value, dict):
        return {name: _builtin(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_builtin(item) for item in value]
    return value.item() if hasattr(value, "item") else value
