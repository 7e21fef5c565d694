"""The LoRA adapters that a live release serves beside those it was published with. Pure transitions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Self

from pydantic import Field

from slipway.tasks.contracts.base import DNS_LABEL, PRINTABLE, Contract
from slipway.tasks.contracts.kubernetes_text import ReleaseId, RunIdentity
from slipway.tasks.contracts.spec.question import SmokeQuestion
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Sha256

KEPT_SETS = 3
"""What is served, and what two roll backs lead to."""
KEY_DIGITS = 12
MARK = "@"
"""Between an adapter's name and what tells one version of it apart. No name has it: names are DNS labels."""
SPEC: Literal["spec"] = "spec"
"""What a run of the adapters may ask for besides PREVIOUS."""


class AdaptersRequest(Contract):
    """The request of a run that changes a live model's adapters."""

    if_invalid = "Correct the argument with that name."

    spec: ReleaseSpec
    run: RunIdentity = Field(description="identity of the Airflow run, or of a run by hand")
    to: Literal["spec", "previous"] = Field(
        default=SPEC, description="spec: what `adapters` of the spec names; previous: what was served before"
    )
    reason: str = Field(default="", pattern=PRINTABLE, max_length=500, description="kept with the adapters")

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.spec.name


class AdapterEntry(Contract):
    """One adapter, checked and stored."""

    name: str = Field(pattern=DNS_LABEL, description="name that requests use")
    repo: str
    revision: str
    commit: str
    key: Sha256 = Field(description="of its artifact, which depends on the release as well")
    rank: int = Field(ge=1)

    @property
    def version(self) -> str:
        """The name by which requests choose exactly this version, while the name means it."""
        return f"{self.name}{MARK}{self.key[:KEY_DIGITS]}"

    @property
    def identity(self) -> tuple[str, str]:
        """What requests can tell of it: its name, and what it means. Another commit may have the same files."""
        return self.name, self.key

    @property
    def words(self) -> str:
        """How people read it."""
        return f"{self.name} {self.repo}{MARK}{self.commit[:KEY_DIGITS]}"


class FetchedAdapters(Contract):
    """What fetch-adapters found and stored. Later steps read it, since the spec's file may change before they run."""

    release: ReleaseId = Field(description="the live release that the adapters were checked with")
    adapters: tuple[AdapterEntry, ...]
    questions: dict[str, tuple[SmokeQuestion, ...]] = Field(description="of each adapter, by its name")
    size_bytes: int


class AdapterSet(Contract):
    """All adapters that were served together, and what made it so."""

    adapters: tuple[AdapterEntry, ...]
    event: Literal["loaded", "rolled-back"]
    run: str
    at: datetime
    reason: str = ""


class Trial(Contract):
    """Adapters that pods load, and that only the run knows how to name."""

    adapters: tuple[AdapterEntry, ...]
    run: str
    mark: str = Field(pattern=r"^[0-9a-f]{16}$", description="random; a client would have to guess it")
    pod: str | None = Field(description="the pod at which they are gated; null: every pod, after they passed")

    def label(self, entry: AdapterEntry) -> str:
        """The name by which the run asks for one of them."""
        return f"{entry.name}{MARK}{self.mark}"


class Adapters(Contract):
    """releases/<name>/<release id>/adapters.json. Changed by compare-and-swap, under the model's lease."""

    release_id: ReleaseId
    sets: tuple[AdapterSet, ...] = Field(default=(), description="newest first: what names mean, and what they meant")
    listed: tuple[str, ...] = Field(default=(), description="names that every ready pod answered to, for /v1/models")
    leaving: tuple[str, ...] = Field(
        default=(), description="names and versions that mean nothing now, and that a ready pod may still answer to"
    )
    trial: Trial | None = None

    @property
    def current(self) -> tuple[AdapterEntry, ...]:
        """What names mean now."""
        return self.sets[0].adapters if self.sets else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are answered."""
        return tuple(entry.name for entry in self.current)

    @property
    def answered(self) -> dict[str, str]:
        """What clients may ask for: names and versions, with the keys of their artifacts."""
        return {label: entry.key for entry in self.current for label in (entry.name, entry.version)}

    @property
    def confirmed(self) -> bool:
        """Whether every ready pod was seen to answer to what names mean now, and to nothing that left."""
        return not self.leaving and set(self.listed) == set(self.names)

    @property
    def needed(self) -> frozenset[str]:
        """Keys of the artifacts that pods load, or would after a roll back."""
        sets = [each.adapters for each in self.sets]
        return frozenset(entry.key for part in (*sets, self.trial.adapters if self.trial else ()) for entry in part)

    def missing(self, wanted: Sequence[AdapterEntry]) -> tuple[AdapterEntry, ...]:
        """Those of `wanted` that their names do not mean yet."""
        there = {entry.identity for entry in self.current}
        return tuple(entry for entry in wanted if entry.identity not in there)

    def means(self, wanted: Sequence[AdapterEntry]) -> bool:
        """Whether names mean exactly `wanted`."""
        return {entry.identity for entry in wanted} == {entry.identity for entry in self.current}

    def before(self, run: str) -> tuple[AdapterEntry, ...] | None:
        """What a roll back by `run` makes names mean; None where there was nothing before.

        A run that has done it already goes back no further.
        """
        if not self.sets:
            return None
        if self.sets[0].event == "rolled-back" and self.sets[0].run == run:
            return self.current
        return self.sets[1].adapters if len(self.sets) > 1 else None

    def labels(self, pod: str) -> dict[str, str]:
        """What a pod answers to, with the keys of their artifacts."""
        found = self.answered
        if self.trial and self.trial.pod in {None, pod}:
            found |= {self.trial.label(entry): entry.key for entry in self.trial.adapters}
        return found

    def tried(self, trial: Trial | None) -> Self:
        """With adapters that pods load before a name means them; None ends that."""
        return self.model_copy(update={"trial": trial})

    def meaning(self, change: AdapterSet) -> Self:
        """With names that mean what `change` says. A name that is new is not listed yet, and an old one may linger."""
        if self.sets and self.sets[0].run == change.run and self.means(change.adapters):
            return self
        none = AdapterSet(adapters=(), event="loaded", run=change.run, at=change.at, reason="as it was published")
        kept = self.sets[2:] if change.event == "rolled-back" else self.sets or (none,)
        new = self.model_copy(update={"sets": (change, *kept)[:KEPT_SETS], "trial": None})
        gone = {*self.leaving, *self.answered} - {*new.answered}
        listed = tuple(name for name in self.listed if name in new.names)
        return new.model_copy(update={"listed": listed, "leaving": tuple(sorted(gone))})

    def listing(self) -> Self:
        """With every name listed, once no pod answers to what left."""
        return self.model_copy(update={"listed": tuple(sorted(self.names)), "leaving": (), "trial": None})
