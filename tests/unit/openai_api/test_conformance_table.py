"""docs/openai.md lists which values of each parameter ask for nothing: the page against the table in the code."""

import json

from tasks.serving.openai_api.neutral import PARAMETERS, WITHOUT_EFFECT
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "openai.md"
HEAD = "| parameter | asks for nothing | routes | of |\n|---|---|---|---|\n"


def table():
    """The rows of the page; SLIPWAY_UPDATE_GOLDENS does not write them: copy them from the failed test."""
    rows = [
        (each.name, ", ".join(f"`{json.dumps(value)}`" for value in each.values), each.routes, each.source)
        for each in PARAMETERS
    ]
    rows += [(name, "any value", frozenset({"both"}), source) for name, source in WITHOUT_EFFECT.items()]
    return HEAD + "".join(
        f"| `{name}` | {values} | {_routes(routes)} | {source.partition(':')[0]} |\n"
        for name, values, routes, source in rows
    )


def _routes(routes):
    return f"`{next(iter(routes))}`" if len(routes) == 1 and "both" not in routes else "both"


def test_the_page_lists_every_parameter_with_the_values_that_ask_for_nothing():
    assert table() in PAGE.read_text(), table()
