"""The scenarios, the remedies for each, and the assumed numbers that are varied together."""

from dataclasses import replace

from bench.scale.day import Day, Setup, Simulation
from bench.scale.numbers import NUMBERS, values

ONE = "an Airflow for each cluster"
ALL = "one Airflow for all"
FEW = "the same, half the GPUs"
NIGHT = "the same, a check at midnight"
FLEET = Setup(models=10_000, releases=2_000, clusters=50)
SCENARIOS = {
    ONE: Setup(models=200, releases=40),
    ALL: FLEET,
    FEW: replace(FLEET, gpus=0.5),
    NIGHT: replace(FLEET, checks=FLEET.models),
}
PATIENT = values({"schedule_budget_s": 12 * 3600.0})
REMEDIES: dict[str, dict[str, Setup]] = {
    ALL: {
        "tasks that wait in a process (deferrable: false)": replace(FLEET, deferrable=False),
        "the same, last steps first": replace(FLEET, deferrable=False, last_first=True),
        "the same, 4 schedulers": replace(FLEET, deferrable=False, last_first=True, schedulers=4),
        "8 slices of the specs, a bundle each": replace(FLEET, slices=8),
        "one DAG, runs mapped over models": replace(FLEET, mapped=True),
        "2 schedulers": replace(FLEET, schedulers=2),
        "imports before the fork": replace(FLEET, preimported=True),
    },
    FEW: {
        "12 hours to wait for a GPU": replace(SCENARIOS[FEW], numbers=PATIENT),
        "a pool for each product, last steps first": replace(SCENARIOS[FEW], pools=True),
        "a pool, and 12 hours": replace(SCENARIOS[FEW], pools=True, numbers=PATIENT),
        "twice the GPUs": FLEET,
    },
    NIGHT: {
        "4 schedulers": replace(SCENARIOS[NIGHT], schedulers=4),
        "imports before the fork": replace(SCENARIOS[NIGHT], preimported=True),
        "last steps first": replace(SCENARIOS[NIGHT], last_first=True),
        "plan skips the other steps itself": replace(SCENARIOS[NIGHT], skipped_at_once=True),
        "both": replace(SCENARIOS[NIGHT], skipped_at_once=True, last_first=True),
        "both, and imports before the fork": replace(
            SCENARIOS[NIGHT], skipped_at_once=True, last_first=True, preimported=True
        ),
        "checks spread over the day": replace(SCENARIOS[NIGHT], checks_spread=True),
    },
}
VARIED = {
    "GPU work of steps": ("quantize_s_gb", "build_s_gb", "assemble_s"),
    "start and measurement of a candidate": ("ready_s", "measure_s"),
    "time until a pod runs": ("node_s", "pod_s"),
    "speed of transfers": ("transfer_gb_s",),
    "size of Airflow's servers": ("scheduler_cores", "api_cores", "database_cores"),
    "cost of API server and database": ("api_s", "api_statements", "statement_s"),
    "spread of durations": ("spread",),
    "share asked in working hours": ("working_share",),
    "share that is stored already": ("stored_share",),
    "share that is refused": ("refused_share",),
    "share with a changed spec": ("edited_share",),
    "calls a cluster's API server takes": ("kube_limit",),
    "times of plan": ("plan_s",),
}
"""Every assumed number, those of one kind together."""
SHARES = ("working_share", "stored_share", "refused_share", "edited_share")


def varied(names: tuple[str, ...], by: float) -> Setup:
    """The scenario with few GPUs, in which these numbers are multiplied."""
    changed = {name: NUMBERS[name].value * by for name in names}
    return replace(
        SCENARIOS[FEW], numbers=values({name: min(1.0, x) if name in SHARES else x for name, x in changed.items()})
    )


def simulate(setup: Setup, seed: int) -> Day:
    """One day; the same seed gives the same day."""
    return Simulation(setup, seed).run()
