"""Writes every deletion into the object store before it is made, and what became of it afterwards."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from slipway.tasks.adapters.progress import size
from slipway.tasks.adapters.store.object_store import ObjectStore
from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.contracts.site.retention import Deletion, DeletionOutcome, Kind, Total

PART = 500
"""Deletions in one document: as many as a run that is killed leaves as `planned`."""
SHOWN = 50

log = logging.getLogger(__name__)


@dataclass
class Ledger:
    """The deletions of one run, in parts that are written before and after they are made."""

    store: ObjectStore
    prefix: str
    dry_run: bool
    parts: list[str] = field(default_factory=list)
    first: list[Deletion] = field(default_factory=list)
    """The first deletions, which the result shows."""
    refused: Deletion | None = None
    """The first deletion that the store did not make."""
    _counts: Counter[tuple[Kind, DeletionOutcome]] = field(default_factory=Counter)
    _objects: Counter[tuple[Kind, DeletionOutcome]] = field(default_factory=Counter)
    _bytes: Counter[tuple[Kind, DeletionOutcome]] = field(default_factory=Counter)

    def carry_out(self, planned: Iterable[Deletion], delete: Callable[[list[Deletion]], list[Deletion]]) -> None:
        """Make deletions part by part; `delete` makes those of one part and returns them with their outcomes."""
        for part in _parts(planned):
            uri = f"{self.prefix}deletions-{len(self.parts) + 1:05}.jsonl"
            if self.dry_run:
                done = [each.model_copy(update={"outcome": "would-delete"}) for each in part]
            else:
                self._write(uri, part)
                done = delete(part)
            self._write(uri, done)
            self.parts.append(uri)
            for each in done:
                self._count(each)

    @property
    def totals(self) -> tuple[Total, ...]:
        """Sums by kind and outcome."""
        return tuple(
            Total(
                kind=kind,
                outcome=outcome,
                count=count,
                objects=self._objects[kind, outcome],
                size_bytes=self._bytes[kind, outcome],
            )
            for (kind, outcome), count in sorted(self._counts.items())
        )

    def _write(self, uri: str, deletions: list[Deletion]) -> None:
        lines = b"".join(canonical_json(each.model_dump(mode="json")) + b"\n" for each in deletions)
        self.store.put_bytes(uri, lines, content_type="application/jsonl")

    def _count(self, deletion: Deletion) -> None:
        entry = deletion.kind, deletion.outcome
        self._counts[entry] += 1
        self._objects[entry] += deletion.objects
        self._bytes[entry] += deletion.size_bytes
        if len(self.first) < SHOWN:
            self.first.append(deletion)
        if deletion.outcome == "incomplete" and self.refused is None:
            self.refused = deletion
        log.info(line_of(deletion))


def line_of(deletion: Deletion) -> str:
    """One deletion as a line for a person."""
    amount = f"{deletion.objects} objects, {size(deletion.size_bytes)}" if deletion.objects else "parts"
    problem = f" ({deletion.problem})" if deletion.problem else ""
    return f"{deletion.outcome}: {deletion.kind} {deletion.uri}: {amount}; {deletion.because}{problem}"


def _parts(deletions: Iterable[Deletion]) -> Iterator[list[Deletion]]:
    remaining = iter(deletions)
    while part := list(islice(remaining, PART)):
        yield part
