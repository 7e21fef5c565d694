"""Plans as text and tables for a person. Pure."""

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from slipway.cli.runs.tables import COMMIT_DIGITS
from slipway.tasks.adapters.progress import size
from slipway.tasks.contracts.fit.forecast import Forecast, NeededRequests, Preview, StepForecast
from slipway.tasks.contracts.stored.artifact import STAGES, Stage
from slipway.tasks.contracts.stored.bytes_to_move import BytesToMove, Repository, StoredFiles, bytes_to_move
from slipway.tasks.contracts.stored.channel import ReleaseState
from slipway.tasks.contracts.stored.plan import Estimate, Plan

MINUTE_S, HOUR_S = 60, 3600
HALF_OF_ONE_HUNDREDTH = 0.005
BECAME: dict[ReleaseState | None, str] = {
    "live": "",
    "previous": ", which is a previous release",
    "promoted": ", which is no longer live",
    "rolled-back": ", which was rolled back",
    "refused": ", which was refused",
    None: ", which is not live",
}


def plan_heading(plan: Plan) -> str:
    """A line with the planned commit."""
    source = plan.source
    forced = ", every artifact is made again (--force)" if plan.forced else ""
    return f"{plan.name}: {source.name}, commit {source.commit[:COMMIT_DIGITS]}{forced}"


def plan_table(preview: Preview) -> Table:
    """A table of the stages: whether each is stored, and if not, why, and how long it will take."""
    plan, forecast = preview.plan, preview.forecast
    steps = {each.step: each for each in forecast.steps} if forecast else {}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for stage in STAGES:
        planned = plan.stages[stage]
        sign, word, style = ("=", "stored", "cyan") if planned.stored else ("+", "missing", "yellow")
        reasons = "\n".join(_reasons(plan, stage))
        about = _about(steps[stage]) if stage in steps else ""
        table.add_row(Text(f"  {sign} {stage}", style), word, planned.key[:COMMIT_DIGITS], about, reasons)
    return table


def plan_footing(preview: Preview) -> list[str]:
    """Lines about what a release would download, need, take and do, and about what is uncertain in that."""
    plan = preview.plan
    adapters = [f"adapters: {line}" for line in preview.adapters]
    adapters += [f"adapters change with `slipway adapters {plan.name}`"] if adapters else []
    if plan.action == "nothing":
        return [nothing_to_do(preview), *adapters]
    estimate, missing = plan.estimate, plan.missing
    moved = preview.transfer or bytes_to_move(plan, StoredFiles())
    quantize = _quantize_needs(estimate) if "quantize" in missing else ""
    work = f"runs {', '.join(missing)}; then" if missing else "every artifact is stored;"
    return [
        f"estimate: {_download(moved)}{quantize}",
        f"serving: {_fetched(moved.repository)}",
        *([] if preview.forecast is None else _gpus(preview.forecast)),
        *([] if preview.forecast is None else _takes(preview.forecast, plan)),
        *(f"requests: {_needs(each)}" for each in preview.needed),
        f"release {plan.release_id}: {work} rolls out, measures, and promotes if the gate passes",
        *([f"engine: {plan.engine_kind}"] if plan.engine_kind else []),
        *([f"rollout: {plan.rollout}"] if plan.rollout and plan.live else []),
        f"live now: {plan.live}, to which a rollback returns"
        if plan.live
        else "live now: nothing, so there is nothing to roll back to",
        *([f"risk: {preview.interruption.words}"] if preview.interruption else []),
        *adapters,
        *(f"warning: {warning}" for warning in plan.warnings),
    ]


def nothing_to_do(preview: Preview) -> str:
    """Why a plan releases nothing, and what of the spec it leaves out."""
    later = ", ".join(preview.unapplied)
    left_out = f"; changes of {later} apply with the next release, or with --force" if later else ""
    return f"nothing to do: {preview.plan.live} is live and matches the request{left_out}"


def duration(seconds: float) -> str:
    """Seconds as a person says them: `45 s`, `12 min`, `3.5 h`."""
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.1f} h"


def _about(step: StepForecast) -> str:
    """A step's time and GPU-hours; empty where they are unknown."""
    if step.seconds is None:
        return ""
    gpus = f", {_hundredths(step.gpu_hours)} GPU-hours" if step.gpu_hours else ""
    return f"about {duration(step.seconds)}{gpus}"


def _download(moved: BytesToMove) -> str:
    parts = []
    if moved.download_files:
        fewer = " (fewer if other downloads in the store have some)" if moved.upper_bound else ""
        parts.append(f"{_files(moved.download_bytes, moved.download_files)} to download{fewer}")
    if moved.copied_files:
        parts.append(f"{_files(moved.copied_bytes, moved.copied_files)} copied within the store")
    if moved.kept_files:
        parts.append(f"{_files(moved.kept_bytes, moved.kept_files)} stored already by an unfinished download")
    return ", ".join(parts) or "nothing to download"


def _files(size_bytes: int, count: int) -> str:
    return f"{size(size_bytes)} in {count} file{'s' * (count != 1)}"


def _fetched(repository: Repository | None) -> str:
    if repository is None:
        return "what each pod fetches is unknown before build has run"
    if repository.of is None:
        return f"each pod fetches {size(repository.size_bytes)}"
    return f"each pod fetches about {size(repository.size_bytes)}, in proportion to {repository.of}"


def _quantize_needs(estimate: Estimate) -> str:
    """What quantize's pod needs, the most demanding one."""
    amounts = [f"{size(estimate.scratch_bytes)} of scratch", f"{size(estimate.memory_bytes)} of memory"]
    if estimate.gpu_bytes:
        amounts.append(f"{size(estimate.gpu_bytes)} of GPU memory for weights")
    return f"; quantize needs at most {', '.join(amounts[:-1])} and {amounts[-1]}"


def _gpus(forecast: Forecast) -> Iterator[str]:
    """The GPUs that steps and candidate take."""
    taken = [f"{each.gpus} in {each.step}" for each in forecast.steps if each.gpus]
    if forecast.candidate_gpus:
        taken.append(f"{forecast.candidate_gpus} for the candidate from roll-out to promote")
    if taken:
        product = f" ({forecast.gpu})" if forecast.gpu else ""  # older plans have none
        yield f"gpus{product}: {', '.join(taken)}"


def _hundredths(value: float) -> str:
    return "< 0.01" if 0 < value < HALF_OF_ONE_HUNDREDTH else f"{value:.2f}"


def _takes(forecast: Forecast, plan: Plan) -> Iterator[str]:
    if forecast.of is None:
        yield f"time: unknown, because no promoted or refused release of {plan.name} has left the times of its steps"
        return
    if forecast.seconds is None:
        yield f"time: unknown, because {forecast.of} has left no times of these steps"
        return
    candidate_hours = forecast.candidate_gpu_hours
    candidates = f" ({_hundredths(candidate_hours)} of them the candidate's own)" if candidate_hours else ""
    gpus = f", {_hundredths(forecast.gpu_hours)} GPU-hours{candidates}" if forecast.gpu_hours else ""
    if shared := forecast.shared_gpus:
        gpus += f", and the candidate on {shared} GPU{'s' * (shared != 1)} that {plan.live} gives up"
    cost = "" if forecast.cost is None else f", {_hundredths(forecast.cost)} {forecast.currency}"
    unknown = f"; {', '.join(forecast.unknown)} not included, without a time there" if forecast.unknown else ""
    state = "live" if forecast.of == plan.live else forecast.state
    yield f"time: about {duration(forecast.seconds)} in pods{gpus}{cost}, as {forecast.of} took{BECAME[state]}{unknown}"
    if forecast.differs:
        yield f"caution: {forecast.of} is not quite like this release, so these times may be far off: " + "; ".join(
            forecast.differs
        )


def _needs(each: NeededRequests) -> str:
    enough = "" if each.requests <= each.allowed else f", and gate.benchmark allows {each.allowed:,}"
    return f"{each.what} against {each.limit:g} needs about {each.requests:,} where the candidate is as fast{enough}"


def _reasons(plan: Plan, stage: Stage) -> list[str]:
    planned = plan.stages[stage]
    if planned.stored:
        return []
    if planned.changed:
        return list(planned.changed)
    return ["made again (--force)" if plan.forced else "the artifact is not in the object store"]
