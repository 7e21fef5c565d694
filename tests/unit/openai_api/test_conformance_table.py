"""docs/openai.md lists what each route takes, ignores, or takes at some values only: the page against the code."""

import json
import textwrap

from slipway.tasks.serving.openai_api.requests import anthropic as anthropic_requests
from slipway.tasks.serving.openai_api.requests import responses as responses_requests
from slipway.tasks.serving.openai_api.requests.neutral import BOTH, PARAMETERS, WITHOUT_EFFECT
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "openai.md"
WIDTH = 140


def neutral_values():
    """The paragraphs of the page; SLIPWAY_UPDATE_GOLDENS does not write them: copy them from the failed test."""
    by_source = {}
    for each in PARAMETERS:
        route = "" if each.routes == BOTH else f" ({', '.join(f'`{name}`' for name in sorted(each.routes))})"
        by_source.setdefault(each.source.partition(":")[0], []).append(_named(each.name, each.values) + route)
    by_source["Any value"] = [f"`{name}`" for name in WITHOUT_EFFECT]
    return "\n".join(_item(f"{source}: {', '.join(names)}.") for source, names in by_source.items())


def _named(name, values):
    first, *others = map(json.dumps, values)
    return " or ".join([f"`{name}: {first}`", *(f"`{value}`" for value in others)])


def _item(text):
    return textwrap.fill(f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def test_the_page_lists_every_parameter_with_the_values_that_ask_for_nothing():
    assert neutral_values() in PAGE.read_text(), neutral_values()


TRANSLATED = {
    "/v1/responses": (responses_requests, responses_requests.ResponseRequest),
    "/v1/messages": (anthropic_requests, anthropic_requests.MessagesRequest),
    "/v1/messages/count_tokens": (anthropic_requests, anthropic_requests.CountRequest),
}


def routes():
    """What the routes take whose requests are translated into chats."""
    said, items = {}, []
    for route, (module, request) in TRANSLATED.items():
        neutral = ", ".join(_named(name, values) for name, values in sorted(module.NEUTRAL.items()))
        others = f"At a value that asks for nothing: {neutral}. Ignored: {_names(module.IGNORED)}."
        others = f"All else as `{said[others]}`." if others in said else said.setdefault(others, route) and others
        items.append(_item(f"`{route}`: {_names(request.model_fields)}. {others}"))
    return "\n".join(items)


def _names(names):
    return ", ".join(f"`{name}`" for name in sorted(names))


def test_the_page_lists_the_parameters_of_the_routes_that_are_translated_into_chats():
    assert routes() in PAGE.read_text(), routes()
