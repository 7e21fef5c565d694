"""What `--json` prints: one document per command, described by `slipway schema --of COMMAND`.

A later version may add fields, and never removes or renames one; whoever reads these documents ignores fields that it
does not know.
"""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from slipway.cli.airflow.api import Airflow, Run
from slipway.cli.error_text import parts
from slipway.tasks.contracts.errors import PipelineError
from slipway.tasks.contracts.fit.forecast import Preview
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.stored.adapters import AdapterEntry
from slipway.tasks.contracts.stored.channel import Channel, ChannelEntry


class Document(BaseModel):
    """A part of what a command prints as JSON."""

    model_config = ConfigDict(frozen=True)


class Problem(Document):
    """A part that could not be read, or does not work."""

    part: str
    text: str
    remedy: str = Field(description="empty if none is known")
    exit_code: int = Field(description="65: correct something; 75: try again")

    @classmethod
    def of(cls, part: str, error: PipelineError) -> "Problem":
        """The problem that an error describes."""
        statement, remedy = parts(error)
        return cls(part=part, text=statement, remedy=remedy, exit_code=error.exit_code)


class Live(Document):
    """The release that is live."""

    release: str
    since: datetime

    @classmethod
    def of(cls, entry: ChannelEntry | None) -> "Live | None":
        """What a channel's entry says; None where nothing is live."""
        return cls(release=entry.release_id, since=entry.since) if entry else None


class RunState(Document):
    """A run in Airflow."""

    id: str
    state: str = Field(description="queued, running, success or failed, as Airflow says")
    started_at: datetime | None
    ended_at: datetime | None
    address: str

    @classmethod
    def of(cls, airflow: Airflow, run: Run) -> "RunState":
        """What Airflow says of a run."""
        return cls(
            id=run.run_id,
            state=run.state,
            started_at=run.started_at,
            ended_at=run.ended_at,
            address=airflow.run_url(run),
        )


class StepState(Document):
    """A task of a run."""

    name: str
    state: str = Field(description="as `slipway release` shows it, such as done, stored, failed or skipped")
    seconds: float | None = Field(description="null if it never ran")
    text: str


class EndOfRun(Document):
    """How a run of Airflow ended."""

    run: RunState
    outcome: str | None = Field(description="in a sentence; null if the run was not followed")
    remedy: str = Field(default="", description="empty if none is known")
    exit_code: int | None = Field(description="null if the run was not followed")


class ReleaseDocument(EndOfRun):
    """`slipway release --json`."""

    steps: list[StepState] = []
    gate: GateReport | None = Field(default=None, description="null if the run has no verdict")
    report: str = Field(default="", description="address of the gate's report")


class GcDocument(EndOfRun):
    """`slipway gc --json`."""

    deletions: list[str] = Field(description="the first ones, in a sentence each")
    lists: list[str] = Field(description="URIs of the lists of every deletion")


class Answer(Document):
    """What one side answered to a prompt."""

    text: str | None = Field(description="null if it failed")
    error: str | None
    first_piece_s: float | None
    seconds: float | None


class ComparedPrompt(Document):
    """A prompt with both answers."""

    id: str
    prompt: str
    answers: list[Answer] = Field(description="in the order of `sides`")
    same: bool


class CompareDocument(Document):
    """`slipway compare --json`."""

    sides: list[str]
    prompts: list[ComparedPrompt]


class Service(Document):
    """The Service at which a model answers."""

    host: str
    ports: dict[str, int]
    pods: list[str] = Field(description="ready ones")


class Held(Document):
    """The run that holds a model."""

    run: str = Field(description="its DAG and its id")
    since: datetime
    ended: bool = Field(description="whether it is over, so that what it left in the cluster is nobody's")


class LiveAdapter(Document):
    """A LoRA adapter that was added to the live release."""

    name: str
    repo: str
    revision: str
    commit: str
    listed: bool = Field(description="whether /v1/models has it: every ready pod answers to it")

    @classmethod
    def of(cls, entry: AdapterEntry, listed: tuple[str, ...]) -> "LiveAdapter":
        """An entry of the release's document."""
        fields = entry.model_dump(include={"name", "repo", "revision", "commit"})
        return cls(**fields, listed=entry.name in listed)


class ModelStatus(Document):
    """One model."""

    name: str
    has_dag: bool | None = Field(description="whether Airflow has its DAG; null if Airflow did not answer")
    live: Live | None
    previous: list[str] = Field(default=[], description="releases that a rollback can make live, newest first")
    adapters: list[LiveAdapter] = Field(default=[], description="added to the live release; only with NAME")
    service: Service | None = Field(default=None, description="only with NAME")
    candidate: Service | None = Field(default=None, description="only with NAME")
    lease: Held | None = Field(default=None, description="null if no run holds the model")
    runs: list[RunState] = Field(description="newest first; without NAME only the newest one")


class StatusDocument(Document):
    """`slipway status --json`."""

    models: list[ModelStatus]
    problems: list[Problem] = []


class ExplainDocument(Document):
    """`slipway explain --json`."""

    name: str
    release: str
    since: datetime
    source: str
    commit: str
    promoted_by: str | None = Field(description="a run; null if that is older than the channel's history")
    gate: GateReport | None = Field(description="null if its evidence was deleted")
    channel: Channel


class FleetMember(Document):
    """One model of a fleet: its live release, or else the newest one that was judged."""

    name: str
    on: str = Field(default="", description="its GPU product, or its servers' shape; empty: nothing was judged yet")
    format: str = ""
    engine_kind: str = ""
    engine: str = Field(default="", description="key of its stage build")
    release: str | None = Field(description="null if nothing is live")
    since: datetime | None = Field(description="null if nothing is live")
    verdict: str | None = Field(description="promoted, refused or rolled-back, whichever was last; null: none was")
    judged_at: datetime | None
    reason: str = Field(description="of the verdict; empty for a promotion")
    tokens_per_s: float | None = Field(default=None, description="output tokens, at the level of load with the most")
    level: str = Field(default="", description="that level, as text")
    cost_per_million_tokens: float | None = Field(default=None, description="there; null: no price")
    currency: str | None = Field(default=None, description="ISO 4217; null: the site has no prices")


class FleetDocument(Document):
    """`slipway explain --json` of a fleet."""

    name: str
    members: list[FleetMember]
    problems: list[Problem] = Field(default=[], description="models that could not be read; part is the model's name")


class FleetPlanDocument(Document):
    """`slipway plan --json` of a fleet."""

    name: str
    members: list[Preview]
    problems: list[Problem] = Field(default=[], description="models without a plan; part is the model's name")


class KeyState(Document):
    """An API key, without what anybody could send."""

    name: str
    id: str
    created: str
    expires: str
    expired: bool


class KeysDocument(Document):
    """`slipway key list --json`."""

    keys: list[KeyState]


class Check(Document):
    """One of the doctor's checks."""

    name: str
    text: str
    remedy: str = Field(description="empty if nothing is wrong")
    exit_code: int = Field(description="0, 65 or 75")


class DoctorDocument(Document):
    """`slipway doctor --json`."""

    checks: list[Check]
