"""docs/openai.md lists what each route takes, ignores, or takes at some values only: the page against the code."""

import json

from slipway.tasks.serving.openai_api.requests import anthropic as anthropic_requests
from slipway.tasks.serving.openai_api.requests import responses as responses_requests
from slipway.tasks.serving.openai_api.requests.neutral import PARAMETERS, WITHOUT_EFFECT
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


ROUTES_HEAD = "| route | taken | only at a value that asks for nothing | ignored |\n|---|---|---|---|\n"
TRANSLATED = {
    "/v1/responses": (responses_requests, responses_requests.ResponseRequest),
    "/v1/messages": (anthropic_requests, anthropic_requests.MessagesRequest),
    "/v1/messages/count_tokens": (anthropic_requests, anthropic_requests.CountRequest),
}


def routes_table():
    """The rows of the routes whose requests are translated into chats."""
    rows = ""
    for route, (module, request) in TRANSLATED.items():
        values = {name: ", ".join(f"`{json.dumps(each)}`" for each in each) for name, each in module.NEUTRAL.items()}
        neutral = "; ".join(f"`{name}`: {each}" for name, each in sorted(values.items()))
        rows += f"| `{route}` | {_names(request.model_fields)} | {neutral} | {_names(module.IGNORED)} |\n"
    return ROUTES_HEAD + rows


def _names(names):
    return ", ".join(f"`{name}`" for name in sorted(names))


def test_the_page_lists_the_parameters_of_the_routes_that_are_translated_into_chats():
    assert routes_table() in PAGE.read_text(), routes_table()
