"""One run of a model's releases: what its steps reported, and what its gate found."""

from dataclasses import dataclass
from functools import cached_property

from slipway.tasks.contracts.step_names import STEPS
from slipway.tasks.contracts.stored.artifact import Layout
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import StepResult
from slipway.tasks.pages import reading
from slipway.tasks.pages.reading import Reader, problems_of
from slipway.tasks.pages.texts import headline
from slipway.tasks.pages.trial import Trial, read_trial


@dataclass(frozen=True)
class RunPage:
    """What is shown of a run."""

    name: str
    run: str
    steps: tuple[StepResult, ...] = ()
    """Results of the run's steps, in the order in which they began."""
    trial: Trial | None = None
    problems: tuple[str, ...] = ()

    @cached_property
    def failed(self) -> StepResult | None:
        """The first step that failed."""
        return next((step for step in self.steps if step.error), None)

    @property
    def tone(self) -> str:
        """The event that the banner is coloured like; empty while nothing is decided."""
        if self.failed:
            return "refused"
        return self.trial.tone if self.trial else ""

    @property
    def banner(self) -> str:
        """What became of the run, in one sentence."""
        if self.failed and self.failed.error:
            return f"{self.failed.step} failed: {self.failed.error.message}"
        if not self.steps:
            return "The plan of this run is not known." if self.problems else "Nothing is planned yet."
        if self.trial is None:
            return self.steps[0].summary
        report = self.trial.report
        if report is None:
            return f"{self.steps[-1].step} is done; the gate has not judged yet."
        return f"{report.release_id}, {headline(report)}."


def read_run(name: str, run: str, layout: Layout, reader: Reader) -> RunPage:
    """Everything that the page of a run shows. `run` is its identity in the store."""
    plan_uri, channel_uri = layout.plan(name, run), layout.channel(name)
    known = reader.read({plan_uri: reading.RESULT, channel_uri: reading.CHANNEL})
    stored, channel = known[plan_uri], known[channel_uri].value or Channel(name=name)
    plan: StepResult | None = stored.value
    if plan is None:
        return RunPage(name, run, problems=problems_of({"the plan": stored}))
    release_id = str(plan.data.get("release_id") or "")
    if not release_id or plan.data.get("action") == "nothing":
        return RunPage(name, run, (plan,))
    results = reader.read({layout.result(name, release_id, step): reading.RESULT for step in STEPS})
    own = [
        each.value for each in results.values() if each.value and each.value.run == run and each.value.step != plan.step
    ]
    steps = sorted([plan, *own], key=lambda result: result.started_at)
    return RunPage(name, run, tuple(steps), read_trial(channel, release_id, run, layout, reader))
