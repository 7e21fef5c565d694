"""The page of all models, whatever there is to show."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from slipway.tasks.contracts.engine.scaling import Autoscale
from slipway.tasks.contracts.spec.serving import Replicas
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.pages.models import DAYS, PAGE_ROWS, Doing, Link, read_rows, window
from slipway.tasks.pages.reading import Stored
from slipway.tasks.pages.templates import render
from tests.fakes.documents.page_documents import PageDocuments
from tests.fakes.documents.refused_release import LIVE, SUMMARIES, documents
from tests.support.strange_pages import Structure

LAYOUT = Layout("s3://bucket")
NOW = datetime(2026, 1, 31, tzinfo=UTC)
THOUSAND = [f"model-{number:03}" for number in range(1000)]


class Away:
    """A reader of a store that does not answer."""

    def read(self, wanted):
        return dict.fromkeys(wanted, Stored(problem="the object store does not answer"))


def page(names, reader, number=1, *, now=NOW, doing=None):
    asked = window(names, number)
    shown = render(
        "models.html.j2",
        window=asked,
        rows=read_rows(asked.shown, LAYOUT, reader),
        doing=dict.fromkeys(names, Doing()) | (doing or {}),
        days=DAYS,
        now=now,
        hub="https://hub.example",
    )
    structure = Structure(shown)
    structure.text = " ".join(structure.text.split())
    return structure


def rows(page):
    return sum(element == "th" and ("scope", "row") in attributes for element, attributes in page.elements)


def test_a_row_says_what_is_live_why_the_last_one_was_refused_and_what_runs():
    now = Doing(Link("benchmark", "/dags/release__demo/runs/two"), (Link("Release", "/dags/release__demo"),))

    text = page(["demo"], PageDocuments(documents(LAYOUT)), doing={"demo": now}).text

    for expected in (LIVE.id, "slipway/demo-llama@aaaaaaaa", "openvino", "int8", "benchmark", "Release"):
        assert expected in text
    assert "refused: 2 of 3 smoke answers wrong, and 1 more" in text


def test_a_row_says_what_the_gate_measured_of_the_live_release():
    own = [each for each in SUMMARIES if each.target == "candidate"]
    measured = own[0].model_copy(update={"errors": 2, "concurrency": 1})
    uri = f"{LAYOUT.evidence('demo', LIVE.id, 'one')}/summary.json"

    text = page(["demo"], PageDocuments({**documents(LAYOUT), uri: [*own, measured]})).text

    assert "TTFT p95 324 msconcurrency 12 of 64 requests failed" in text  # a line each


@pytest.mark.parametrize(
    ("autoscale", "expected"), [(None, "1 replica"), (Autoscale(metric="request_rate", target=5), "1 to 3 replicas")]
)
def test_a_row_says_how_many_replicas_a_scaler_may_make(autoscale, expected):
    serving = LIVE.spec.serving.model_copy(update={"replicas": Replicas(min=1, max=3), "autoscale": autoscale})
    live = LIVE.model_copy(update={"spec": LIVE.spec.model_copy(update={"serving": serving})})

    text = page(["demo"], PageDocuments({**documents(LAYOUT), LAYOUT.release("demo", LIVE.id): live})).text

    assert re.search(r"\d( to \d)? replicas?", text)[0] == expected


def test_the_strip_goes_back_thirty_days():
    reader = PageDocuments(documents(LAYOUT))

    assert ("aria-label", "in 30 days: 1 promoted, 1 refused") in [
        attribute for _, attributes in page(["demo"], reader).elements for attribute in attributes
    ]
    later = page(["demo"], reader, now=NOW + timedelta(days=DAYS + 1))
    assert not any(("class", "strip") in attributes for _, attributes in later.elements)


def test_a_store_that_does_not_answer_leaves_every_model_listed_and_says_why():
    found = page(["demo", "other"], Away())

    assert rows(found) == 2
    assert found.text.count("its channel cannot be shown: the object store does not answer") == 2


@pytest.mark.parametrize(("number", "first", "shown"), [(1, "model-000", PAGE_ROWS), (10, "model-900", PAGE_ROWS)])
def test_a_thousand_models_are_pages_of_a_hundred(number, first, shown):
    found = page(THOUSAND, PageDocuments({}), number)

    assert (rows(found), first in found.text) == (shown, True)
    assert f"page {number} of 10, 1000 models" in found.text


def test_no_model_and_a_page_beyond_the_last_one_say_so():
    assert "There is no model that you may see." in page([], Away()).text
    assert "There is no page 11: the 1000 models fill 10." in page(THOUSAND, Away(), 11).text
