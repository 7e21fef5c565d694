"""The simulation of bench.scale: its queues against formulas, and what follows from its inputs by arithmetic."""

from dataclasses import replace
from itertools import chain
from math import fsum

import pytest
import simpy

from bench.scale.closed_forms import erlang_c, wait_s
from bench.scale.day import GPU_CANDIDATE, IMPORT, Setup, Simulation, parsing
from bench.scale.numbers import ASSUMED, NUMBERS, values
from bench.scale.stations import BIN_S, Line, Meter, Station
from bench.scale.study import VARIED, simulate

SMALL = Setup(models=200, releases=40)
MEAN_S = 10.0


def test_erlangs_formula_has_its_published_values():
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(4, 3.2) == pytest.approx(0.5964, abs=1e-4)


@pytest.mark.parametrize("line", [True, False], ids=["Line", "Station"])
def test_waits_before_four_servers_are_those_of_erlangs_formula(line):
    formula = erlang_c(4, 2.0) * MEAN_S / (4 - 2.0)

    assert wait_s(1, 4, 2.0, MEAN_S, line=line, customers=20_000) == pytest.approx(formula, rel=0.1)


def test_waits_for_a_constant_service_are_half_of_those_for_a_random_one():
    formula = 0.5 * MEAN_S / (2 * (1 - 0.5))

    assert wait_s(1, 1, 0.5, MEAN_S, line=True, constant=True, customers=20_000) == pytest.approx(formula, rel=0.1)


def test_a_meter_loses_nothing_between_its_bins():
    meter = Meter()

    meter.spread(0.5 * BIN_S, 3.25 * BIN_S, rate=2.0)

    assert dict(meter.bins) == {0: BIN_S, 1: 2 * BIN_S, 2: 2 * BIN_S, 3: 0.5 * BIN_S}
    assert (meter.peak(4.0), meter.mean(4.0, 2 * BIN_S)) == (0.5, 0.375)


def test_a_line_serves_in_order_and_counts_its_busy_time():
    env = simpy.Environment()
    line = Line(env, 2)

    assert [line.enter(10.0), line.enter(4.0), line.enter(1.0), line.enter(1.0)] == [0, 0, 4, 5]
    assert fsum(line.meter.bins.values()) == 16


def test_a_station_serves_the_lowest_priority_first_and_whoever_has_no_patience_leaves():
    env, served = simpy.Environment(), []
    station = Station(env, 1)

    def customer(name, priority, patience_s=None):
        since, waited = yield from station.take(priority, patience_s)
        served.append((name, since is not None, waited))
        if since is not None:
            yield env.timeout(10)
            station.give(since)

    for arguments in (("first", 0), ("late", 5), ("early", -5), ("hasty", -9, 3)):
        env.process(customer(*arguments))
    env.run()

    assert served == [("first", True, 0), ("hasty", False, 3), ("early", True, 10), ("late", True, 20)]
    assert fsum(station.meter.bins.values()) == 30


def test_the_same_seed_is_the_same_day_and_a_remedy_meets_the_same_releases():
    first, again, other = simulate(SMALL, 7), simulate(SMALL, 7), simulate(replace(SMALL, preimported=True), 7)

    assert first == again
    assert len(other.totals) + other.given_up == len(first.totals) + first.given_up
    assert other.mean["Airflow's CPU"] < 0.2 * first.mean["Airflow's CPU"]


def test_the_time_limit_of_an_import_is_reached_by_arithmetic_and_slices_divide_it():
    times = values({"parse_release_s": 0.016, "parse_broken_s": 0.017})
    setup = Setup(models=1765, releases=0, numbers=times)

    assert parsing(setup)[0] == pytest.approx(1765 * 0.017)
    assert simulate(setup, 1).peak[IMPORT] == pytest.approx(1.0, abs=0.001)
    assert parsing(replace(setup, slices=5))[0] == pytest.approx(353 * 0.017)
    assert parsing(replace(setup, mapped=True))[0] == 0.017


def test_a_release_whose_candidate_finds_no_gpu_is_given_up():
    never = values({"schedule_budget_s": 1.0, "stored_share": 1.0, "ready_s": 1e7})

    day = simulate(replace(SMALL, gpus=0.01, numbers=never), 3)

    assert day.given_up > 30
    assert all(waited < 3 * 3600 for waited in day.waits[GPU_CANDIDATE])


def test_a_check_costs_a_process_for_each_step_unless_plan_skips_them():
    checks = replace(SMALL, releases=0, checks=10)
    busy = [
        fsum(sum(each.meter.bins.values()) for each in (simulation.cores,))
        for simulation in (Simulation(checks, 1), Simulation(replace(checks, skipped_at_once=True), 1))
        if simulation.run()
    ]

    process_s = NUMBERS["process_s"].value + NUMBERS["store_client_s"].value
    assert busy == pytest.approx([10 * 16 * process_s, 10 * 4 * process_s])


def test_each_number_says_where_it_is_from_and_each_assumed_one_is_varied():
    assert all(number.source for number in NUMBERS.values())
    assert sorted(chain(*VARIED.values())) == sorted(set(ASSUMED))
