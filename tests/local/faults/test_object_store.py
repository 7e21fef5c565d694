"""S3 fails while a release is rolled out and promoted: Airflow tries the step again, and the live release answers."""

import pytest

from tests.local.faults.model import UNAVAILABLE

FAILING = {
    "5xx": ("model", lambda front: front.spoiling("status", methods=("GET",))),
    "refused connections": ("model", lambda front: front.refusing()),
    "truncated reads": ("paper_model", lambda front: front.spoiling("cut", methods=("GET",))),
    "a wrong clock": ("paper_model", lambda front: front.spoiling("status", status=403, code="RequestTimeTooSkewed")),
}


@pytest.mark.parametrize(("kind", "fault"), FAILING.values(), ids=FAILING)
def test_a_release_gets_over_a_store_that_fails(request, spoiled, kind, fault):
    model = request.getfixturevalue(kind)
    before, new = model.live, model.version()

    with fault(spoiled):
        assert model.step("roll-out", new) == UNAVAILABLE, model.message
    assert model.answers() == before
    model.steps(new, "roll-out")
    model.judge(new)
    with fault(spoiled):
        assert model.step("promote", new) == UNAVAILABLE, model.message
    assert model.answers() == model.live == before
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


def test_a_promotion_whose_channel_cannot_be_written_after_the_flip_is_finished_by_the_next_try(model, spoiled):
    before, new = model.live, model.candidate()

    with spoiled.spoiling("status", methods=("PUT",), key="channels/") as met:
        assert model.step("promote", new) == UNAVAILABLE, model.message
        assert met.met
    assert (model.answers(), model.live) == (new.id, before)
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


def test_a_promotion_whose_channel_cannot_be_written_after_the_flip_can_be_rolled_back(paper_model, spoiled):
    model = paper_model
    before, new = model.live, model.candidate()

    with spoiled.spoiling("status", methods=("PUT",), key="channels/"):
        assert model.step("promote", new) == UNAVAILABLE, model.message
    model.steps(new, "roll-back")

    model.assert_whole(before, ("refused", new.id))


def test_a_promotion_whose_write_of_the_channel_is_never_answered_is_recorded_once(model, spoiled):
    new = model.candidate()

    with spoiled.spoiling("lose", methods=("PUT",), key="channels/"):
        assert model.step("promote", new) == UNAVAILABLE, model.message
    assert model.answers() == model.live == new.id
    model.steps(new, "promote")

    model.assert_whole(new.id, ("promoted", new.id))


def test_a_store_that_answers_slowly_costs_time_and_nothing_else(paper_model, spoiled):
    model = paper_model
    new = model.candidate()

    with spoiled.spoiling("drip", methods=("GET",)) as met:
        model.steps(new, "promote")
        assert met.met

    model.assert_whole(new.id, ("promoted", new.id))
