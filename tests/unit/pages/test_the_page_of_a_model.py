"""The page of one model: why it is as it is, before everything else."""

from datetime import UTC, datetime

import pytest

from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.pages.model import read_model
from slipway.tasks.pages.models import Doing
from slipway.tasks.pages.templates import render
from tests.fakes.documents.page_documents import PageDocuments
from tests.fakes.documents.refused_release import (
    ANSWERS,
    CANDIDATE,
    LIVE,
    RIGHT,
    RUN,
    WRONG,
    canary,
    documents,
    gate,
    promoted,
)
from tests.support.strange_pages import Structure

LAYOUT = Layout("s3://bucket")
NOW = datetime(2026, 1, 31, tzinfo=UTC)
PROMOTED = promoted(LAYOUT, NOW)
WORST = "2 of 3 smoke answers wrong: smoke accuracy 0.333, at least 1 needed"


def page(stored, run=""):
    model = read_model("demo", LAYOUT, PageDocuments(stored), run)
    return render("model.html.j2", model=model, doing=Doing(), index="../", hub="https://hub.example")


def text(page):
    return " ".join(Structure(page).text.split())


def test_a_refusal_says_why_first_and_folds_what_passed():
    shown = page(documents(LAYOUT, gate=gate(RIGHT, WRONG)))

    words = text(shown)
    assert f"{CANDIDATE.id} was refused: {WORST}; {LIVE.id} stays live." in words
    assert words.index("2 of 3 smoke answers wrong") < words.index("1 of 2 expectations hold")
    assert "<details><summary>1 of 2 expectations hold" in shown


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({}, f"{CANDIDATE.id} answers 25 % of the requests, {LIVE.id} the others."),
        (
            {"percent": 0, "mirror": 10, "phase": "mirroring"},
            f"{CANDIDATE.id} gets a copy of 10 % of the requests. {LIVE.id} answers all of them.",
        ),
        ({"percent": 0, "phase": "rolled-back"}, f"{LIVE.id} answers all requests."),
    ],
)
def test_a_canary_that_runs_says_who_answers_and_each_verdict_so_far(state, words):
    channel = promoted(LAYOUT, NOW)
    shown = page(documents(LAYOUT, channel=channel, canary=canary(NOW, **state)), run=RUN)

    assert words in text(shown)
    assert "errors 0 of 900" in text(shown)
    assert "Canary" not in text(page(documents(LAYOUT, channel=channel, canary=canary(NOW)), run="three"))


def test_a_model_from_a_folder_has_neither_a_commit_of_the_hub_nor_a_revision():
    source = LIVE.plan.source.model_copy(update={"repo": "s3://models/acme/demo", "revision": "", "commit": "a" * 64})
    live = LIVE.model_copy(update={"plan": LIVE.plan.model_copy(update={"source": source})})

    shown = page({**documents(LAYOUT), LAYOUT.release("demo", LIVE.id): live})

    assert '<th scope="row">Folder</th><td>s3://models/acme/demo@aaaaaaaa, ' in shown
    assert "Hub commit" not in text(shown)
    assert "as revision" not in text(shown)


def test_wrong_answers_are_shown_as_expected_against_given():
    shown = page(documents(LAYOUT, gate=gate(WRONG), answers=ANSWERS))

    assert "It is <mark>six.</mark>" in shown
    assert "It is <mark>ten.</mark>" in shown
    assert "timed out" in text(shown)
    assert "Two and two?" not in shown


@pytest.mark.parametrize(
    ("channel", "banner"),
    [
        (PROMOTED, f"{LIVE.id} is live."),
        (
            PROMOTED.promoted(CANDIDATE.id, LAYOUT.release("demo", CANDIDATE.id), at=NOW, run="two", keep=2),
            f"{CANDIDATE.id} is live: all 1 expectations hold.",
        ),
        (
            PROMOTED.promoted(CANDIDATE.id, "s3://x", at=NOW, run="two", keep=2).rolled_back(
                at=NOW, run="three", reason="too slow"
            ),
            f"{CANDIDATE.id} was rolled back: too slow; {LIVE.id} is live again.",
        ),
        (
            Channel(name="demo").refused(CANDIDATE.id, at=NOW, run="none", reason="build: out of memory"),
            f"{CANDIDATE.id} was refused: build: out of memory; nothing is live.",
        ),
        (Channel(name="demo"), "Nothing was released yet."),
    ],
)
def test_the_banner_says_why_in_one_sentence(channel, banner):
    stored = documents(LAYOUT, channel=channel, gate=gate(RIGHT))

    assert read_model("demo", LAYOUT, PageDocuments(stored)).banner == banner
    assert banner in text(page(stored))


def test_a_model_without_a_channel_was_never_released_and_a_torn_one_says_so():
    assert "Nothing was released yet." in text(page({}))
    torn = text(page({LAYOUT.channel("demo"): b"{"}))
    assert "the channel cannot be shown" in torn
    assert "What is live is not known." in torn


def test_torn_evidence_is_named_and_the_rest_is_shown():
    words = text(page(documents(LAYOUT, gate=gate(WRONG), answers=b"{")))

    assert "answers cannot be shown" in words
    assert "2 of 3 smoke answers wrong" in words
