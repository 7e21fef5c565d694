"""Documents as the pages read them, and how each becomes a contract. Pure: whoever has a store passes a reader."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from slipway.tasks.contracts.base import Contract, parse_json, read_contract_json
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.fit.ledger import Ledger
from slipway.tasks.contracts.measured.canary import CanaryRecord
from slipway.tasks.contracts.measured.gate import GateReport
from slipway.tasks.contracts.measured.harness import HarnessReport
from slipway.tasks.contracts.measured.measurement import AnswerRow, LevelSummary
from slipway.tasks.contracts.stored.artifact import Manifest
from slipway.tasks.contracts.stored.attestation import Bundle
from slipway.tasks.contracts.stored.channel import Channel
from slipway.tasks.contracts.stored.release import Release, StepResult

Document = TypeVar("Document", bound=Contract)
Parse = Callable[[bytes], Any]


@dataclass(frozen=True)
class Stored:
    """A document: its contract, or None and the problem; None without a problem where there is no document."""

    value: Any = None
    problem: str = ""


class Reader(Protocol):
    """Whoever reads documents. A document that cannot be read is a problem of it alone, never an exception."""

    def read(self, wanted: Mapping[str, Parse]) -> dict[str, Stored]:
        """Every document by its URI, parsed."""
        ...


class ByteStore(Protocol):
    """A store of documents."""

    def read_with_etag(self, uri: str) -> tuple[bytes, str] | None:
        """The bytes and ETag of a document; None where there is none."""
        ...


@dataclass(frozen=True)
class StoreReader:
    """A reader over a store, whose own errors are raised."""

    store: ByteStore

    def read(self, wanted: Mapping[str, Parse]) -> dict[str, Stored]:
        """Every document, parsed."""
        found = {uri: self.store.read_with_etag(uri) for uri in wanted}
        return {uri: parsed(each[0], wanted[uri]) if each else Stored() for uri, each in found.items()}


def parsed(data: bytes, parse: Parse) -> Stored:
    """The document of these bytes."""
    try:
        return Stored(parse(data))
    except (InputError, ValidationError, ValueError):
        return Stored(problem="it is not what this version of Slipway can read")


def problems_of(documents: Mapping[str, Stored]) -> tuple[str, ...]:
    """What cannot be read of documents by their names, and why."""
    return tuple(f"{name} cannot be shown: {each.problem}" for name, each in documents.items() if each.problem)


def _contract(contract: type[Document], data: bytes) -> Document:
    return read_contract_json(contract, data, contract.__name__)


def _rows(adapter: TypeAdapter[Any], data: bytes) -> Any:
    return adapter.validate_python(parse_json(data, "rows"))


CHANNEL, RELEASE, GATE, RESULT, MANIFEST, SIGNATURE, HARNESS, COSTS, CANARY = (
    partial(_contract, kind)
    for kind in (Channel, Release, GateReport, StepResult, Manifest, Bundle, HarnessReport, Ledger, CanaryRecord)
)
ANSWERS = partial(_rows, TypeAdapter(tuple[AnswerRow, ...]))
SUMMARIES = partial(_rows, TypeAdapter(tuple[LevelSummary, ...]))
