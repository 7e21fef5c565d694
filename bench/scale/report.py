"""The tables that the simulation ends in."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, quantiles, stdev

from rich.console import Console
from rich.table import Table

from bench.scale.closed_forms import Compared
from bench.scale.day import CAUSES, GPU_CANDIDATE, GPU_STEP, IMPORT, Day, Setup
from bench.scale.numbers import NUMBERS, PRODUCTS
from bench.scale.study import SCENARIOS

STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""97.5 % of Student's distribution, from one degree of freedom on."""
SMALL = 10.0


def quantile(seen: Sequence[float], percent: int) -> float:
    """A percentile of what was seen; 0 if there is nothing."""
    if len(seen) < 2:  # noqa: PLR2004 - what statistics.quantiles needs
        return seen[0] if seen else 0.0
    return quantiles(seen, n=100, method="inclusive")[percent - 1]


def interval(days: Sequence[Day], figure: Callable[[Day], float]) -> str:
    """The mean over the days, and half of its interval of 95 %."""
    seen = [figure(day) for day in days]
    if len(seen) == 1:
        return _text(seen[0])
    half = STUDENT[len(seen) - 2] * stdev(seen) / len(seen) ** 0.5
    return f"{_text(fmean(seen))} ± {_text(half)}"


def _text(value: float) -> str:
    return f"{value:.1f}" if abs(value) < SMALL else f"{value:,.0f}"


def failed(day: Day) -> float:
    """Releases that found no GPU in time, of 100."""
    return 100 * day.given_up / max(1, day.given_up + len(day.totals))


def waited(cause: str, percent: int) -> Callable[[Day], float]:
    """Minutes that releases waited for something."""
    return lambda day: quantile(day.waits[cause], percent) / 60


def for_gpus(percent: int) -> Callable[[Day], float]:
    """Minutes that releases waited for GPUs, of steps and candidate together."""
    return lambda day: (
        quantile([sum(each) for each in zip(day.waits[GPU_STEP], day.waits[GPU_CANDIDATE], strict=True)], percent) / 60
    )


def peak(name: str) -> Callable[[Day], float]:
    """How busy a resource was in its busiest ten minutes, of 100."""
    return lambda day: 100 * day.peak[name]


def total(percent: int) -> Callable[[Day], float]:
    """Minutes of a whole release that ended in promote or a refusal."""
    return lambda day: quantile(day.totals, percent) / 60


def checked(percent: int) -> Callable[[Day], float]:
    """Minutes of a run that found nothing to do."""
    return lambda day: quantile(day.checked, percent) / 60


FIGURES: dict[str, Callable[[Day], float]] = {
    "import, % of limit": peak(IMPORT),
    "Airflow's CPU, %": peak("Airflow's CPU"),
    "slots, %": peak("task slots"),
    "wait for GPUs p95, min": for_gpus(95),
    "found no GPU, %": failed,
    "release p50, min": total(50),
    "release p95, min": total(95),
    "wait for a changed spec p95, min": waited("spec is read", 95),
    "check p95, min": checked(95),
}
GPUS = ("found no GPU, %", "wait for GPUs p95, min", "release p50, min", "release p95, min")


def numbers() -> Table:
    """The inputs."""
    table = Table("number", "value", "unit", "", "where", title="Numbers that the simulation starts from")
    for name, number in NUMBERS.items():
        table.add_row(name, f"{number.value:,g}", number.unit, number.origin, number.source)
    for each in PRODUCTS:
        what = f"{each.share:.0%} of releases, {each.weights_gb:g} GB, {each.gpus} GPUs of a pod"
        table.add_row(f"models on {each.name}", f"{each.free_gpus}", "GPUs", "assumed", f"{what}; free in each cluster")
    return table


def closed_forms(rows: Sequence[Compared], within: float) -> Table:
    """The simulation against formulas."""
    table = Table("what", "simulated", "formula", "apart", "", title="Against closed forms")
    for row in rows:
        verdict = "met" if row.off <= within else "missed"
        table.add_row(
            row.what,
            f"{row.simulated:,.2f}",
            f"{row.formula:,.2f}",
            f"{row.off:.1%}",
            f"(goal {within:.0%}: {verdict})",
        )
    return table


def use(days: Mapping[str, Sequence[Day]]) -> Table:
    """How busy each resource is in its busiest ten minutes."""
    table = Table("% of its capacity", *days, title="The busiest ten minutes of a day")
    names = list(next(iter(days.values()))[0].peak)
    order = sorted(names, key=lambda name: -max(fmean(day.peak[name] for day in each) for each in days.values()))
    for name in order:
        table.add_row(name, *(interval(each, peak(name)) for each in days.values()))
    return table


def limits(days: Sequence[Day], setup: Setup) -> Table:
    """What one Airflow takes before a resource is used up in its busiest ten minutes, all else in proportion."""
    table = Table("resource", "is used up at", title="Limits of one Airflow, in proportion to its busiest ten minutes")
    rows = {name: fmean(day.peak[name] for day in days) for name in days[0].peak}
    for name, share in sorted(rows.items(), key=lambda row: -row[1]):
        many, what = (setup.models, "models") if name == IMPORT else (setup.releases, "releases a day")
        table.add_row(name, f"{many / share:,.0f} {what}")
    return table


def waits(days: Mapping[str, Sequence[Day]]) -> Table:
    """What a release waits for."""
    table = Table("minutes, p50 / p95", *days, title="What a release waits for")
    for cause in CAUSES:
        table.add_row(
            cause,
            *(f"{interval(each, waited(cause, 50))} / {interval(each, waited(cause, 95))}" for each in days.values()),
        )
    table.add_row(
        "all of a release", *(f"{interval(each, total(50))} / {interval(each, total(95))}" for each in days.values())
    )
    table.add_row(
        "a check with nothing to do",
        *(f"{interval(each, checked(50))} / {interval(each, checked(95))}" for each in days.values()),
    )
    table.add_row("found no GPU, %", *(interval(each, failed) for each in days.values()))
    return table


def remedies(scenario: str, days: Mapping[str, Sequence[Day]]) -> Table:
    """What each remedy changes."""
    shown = [name for name, figure in FIGURES.items() if any(figure(day) for each in days.values() for day in each)]
    table = Table("remedy", *shown, title=f"Remedies: {scenario}")
    for name, each in days.items():
        table.add_row(name or "as it is", *(interval(each, FIGURES[figure]) for figure in shown))
    return table


def sensitivity(base: Day, days: Mapping[tuple[str, float], Day]) -> Table:
    """What changes when assumed numbers are half or double, with the first seed."""

    def cells(day: Day) -> list[str]:
        first = max((name for name in day.peak if name != IMPORT), key=lambda name: day.peak[name])
        return [
            f"{first}, {100 * day.peak[first]:.0f} %",
            *(_text(FIGURES[name](day)) for name in GPUS),
            _text(FIGURES["Airflow's CPU, %"](day)),
        ]

    table = Table(
        "assumed number",
        "busiest but for the import",
        *GPUS,
        "Airflow's CPU, %",
        title="If an assumed number is wrong: half the GPUs, one day",
    )
    table.add_row("as it is", *cells(base))
    for (name, by), day in days.items():
        table.add_row(f"{name} x {by:g}", *cells(day))
    return table


def print_all(console: Console, days: Mapping[tuple[str, str], Sequence[Day]]) -> None:
    """Print what was seen of the scenarios and their remedies."""
    plain = {name: days[name, ""] for name in SCENARIOS}
    names = list(SCENARIOS)
    console.print(use(plain), limits(days[names[1], ""], SCENARIOS[names[1]]), waits(plain))
    for scenario in SCENARIOS:
        tried = {remedy: each for (name, remedy), each in days.items() if name == scenario}
        if len(tried) > 1:
            console.print(remedies(scenario, tried))
