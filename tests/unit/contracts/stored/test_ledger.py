"""What a release cost and what its tokens cost, by the site's prices."""

from datetime import UTC, datetime

import pytest

from slipway.tasks.contracts.fit.forecast import PastTimes, forecast
from slipway.tasks.contracts.fit.ledger import cost_per_hour, ledger, per_million_tokens
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.load_level import LoadLevel
from slipway.tasks.contracts.stored.bytes_to_move import StoredFiles, bytes_to_move
from slipway.tasks.contracts.stored.release import StepResult
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.releases import spec
from tests.fakes.workspace import site
from tests.unit.contracts.fit.test_forecast import ON_GPUS, PRICES, planned

LEVEL = LoadLevel(concurrency=4)


def result(step, seconds, outcome="done"):
    started = datetime(2026, 1, 1, tzinfo=UTC)
    return StepResult(step=step, run="r", outcome=outcome, summary="", started_at=started, seconds=seconds)


def resolved(on, **changes):
    return ResolvedRelease(spec(**changes), on)


def test_a_million_tokens_cost_what_the_pods_cost_while_they_give_them():
    two_gpus = cost_per_hour(resolved(gpu_site(prices=PRICES), **ON_GPUS))

    assert two_gpus == pytest.approx(2 * 2.0)
    # 4 an hour at 1,000 tokens/s: a million takes 1,000 s
    assert per_million_tokens(two_gpus, 1000.0) == pytest.approx(4 * 1000 / 3600)


def test_replicas_cost_as_much_as_one_each():
    prices, two = gpu_site(prices=PRICES), {"serving": {"replicas": {"min": 2, "max": 2}}}

    assert cost_per_hour(resolved(prices, **ON_GPUS, **two)) == 2 * cost_per_hour(resolved(prices, **ON_GPUS))


def test_steps_that_ran_are_in_it_and_stored_ones_are_not():
    found = ledger(
        resolved(site(prices={"cpu_hour": 3.6})),
        None,
        [result("download", 100), result("build", 50), result("quantize", 0, "stored")],
        {LEVEL: 200.0},
    )

    assert [each.step for each in found.steps] == ["download", "build"]
    assert found.candidate.cost == 0
    assert found.cost == pytest.approx(sum(each.cost for each in found.steps))
    assert found.steps[0].cost == pytest.approx(2 * found.steps[1].cost)
    assert found.levels[0].level == "concurrency 4"


@pytest.mark.parametrize("surge", ["full", "none"])
@pytest.mark.parametrize("changes", [ON_GPUS, {}])
def test_a_release_that_took_what_its_forecast_said_cost_what_it_said(changes, surge):
    on = gpu_site(prices=PRICES)
    asked, plan = planned(rollout={"surge": surge}, **changes)
    live = asked.model_copy(update={"rollout": spec().rollout})
    took = {"build": 300.0, "assemble": 60.0, "roll-out": 120.0, "benchmark": 240.0}
    past = PastTimes("demo-000000000000", plan.download_bytes, took)

    foreseen = forecast(ResolvedRelease(asked, on), plan, past, moved=bytes_to_move(plan, StoredFiles()), live=live)
    results = [result(step, seconds) for step, seconds in took.items()]
    found = ledger(ResolvedRelease(asked, on), plan.estimate, results, {}, live=live)

    assert (found.gpu_hours, found.cost) == pytest.approx((foreseen.gpu_hours, foreseen.cost))
    assert found.candidate.gpu_hours == pytest.approx(foreseen.candidate_gpu_hours)
    assert found.cost > 0


def test_without_a_price_hours_are_known_and_no_cost_is():
    no_price = {"cpu_hour": 0.5, "gpu_hour": {}}
    found = ledger(resolved(gpu_site(prices=no_price), **ON_GPUS), None, [result("build", 3600)], {LEVEL: 200.0})

    assert (found.cost_per_hour, found.levels[0].cost_per_million_tokens) == (None, None)
    assert found.currency == "USD"
    assert per_million_tokens(1.0, 0.0) is None
