"""The one reader of documents that people write: spec and site files in YAML. Pure: it returns data or raises an error.

A document that people write is JSON in YAML's notation: one document, unique text keys, no tags, dates or merges. Size
and depth, aliases included, are checked before anything is built, so that no document can exhaust memory, stack or time
(docs/decisions/0014-one-bounded-reader.md).
"""

import math
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

import yaml

from slipway.tasks.contracts.base import C, read_contract
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import field_name, redacted
from slipway.tasks.contracts.violations import Loc, Positions
from slipway.tasks.contracts.wire.bounded_json import MAX_DIGITS

MAX_BYTES = 2**20
MAX_NODES = 20_000
MAX_DEPTH = 20  # a spec needs 5
MAX_INTEGER = 2**53
"""Readers of JSON do not agree on integers beyond it (RFC 8259, section 6)."""
UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML does not print (YAML 1.1, section 5.1). Databases, processes and terminals reject them."""
NOT_JSON = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"})
INTEGER, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, without the types that JSON lacks."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class declares it so
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in NOT_JSON]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Build a mapping whose keys are text and unique: a second `gate:` would bypass the first."""
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                _refuse(key_node, f"a key is a {type(key).__name__}, expected text: put it in quotes")
            if key in mapping:
                _refuse(key_node, f"the key {field_name(key)} occurs twice in one mapping: remove one")
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping

    def construct_number(self, node: Any) -> int | float:
        """Build a number that every reader of JSON reads alike."""
        if len(node.value) > MAX_DIGITS:
            _refuse(node, f"a number has {len(node.value)} digits, expected at most {MAX_DIGITS}")
        build = self.construct_yaml_int if node.tag == INTEGER else self.construct_yaml_float
        try:
            number: int | float = build(node)
        except (ValueError, OverflowError):
            _refuse(node, "this looks like a number but is not one: put it in quotes")
        if not math.isfinite(number) or (isinstance(number, int) and abs(number) > MAX_INTEGER):
            _refuse(node, f"{redacted(node.value)} is not a finite number, or is above 2^53")
        return number


_Loader.add_constructor(INTEGER, _Loader.construct_number)
_Loader.add_constructor(FLOAT, _Loader.construct_number)


def parse_contract(model: type[C], data: bytes, what: str) -> C:
    """Parse and validate a document that a person wrote.

    Raises:
        InputError: it is not a document (see parse_document), or not a valid `model`. Names lines and columns.
    """
    return read_contract(model, parse_document(data, what), what, positions_in(data))


def positions_in(data: bytes) -> Positions:
    """Find places in a document that parse_document has read: a value, or the key of an unknown field."""

    @cache
    def root() -> Any:
        return yaml.compose(data.decode("utf-8-sig"), Loader=_Loader)

    def position(loc: Loc) -> tuple[int, int] | None:
        node = root()
        mark = node.start_mark if node else None
        for part in loc:
            key, value = _child(node, part)
            if key is not None:
                node, mark = value, key.start_mark
        return (mark.line + 1, mark.column + 1) if mark else None

    return position


def _child(node: Any, part: int | str) -> tuple[Any, Any]:
    """The node at which an entry begins, and the node of its value; None twice if there is no such entry."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return None, None


def parse_document(data: bytes, what: str) -> Any:
    """Parse a document that a person wrote.

    Args:
        data: YAML in UTF-8.
        what: the name of the document in messages, such as a file's path.

    Raises:
        InputError: it is too large, not UTF-8, not YAML, or has values that JSON lacks. Names line and column.
    """
    if len(data) > MAX_BYTES:
        raise InputError(
            f"{what} is too long",
            expected=f"at most {MAX_BYTES} bytes",
            remedy="Check that it is a spec or a site file.",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{what}:{line}: byte {error.start} is not UTF-8", remedy="Save the file as UTF-8.") from error
    try:
        _check_events(text, what)
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader with fewer types
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{what}:{mark.line + 1}:{mark.column + 1}" if mark else what
        problem = redacted(str(error.problem or error.context))
        raise InputError(f"{where}: not valid YAML: {problem}", remedy="Correct that line.") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: not valid YAML: {redacted(str(error))}", remedy="Correct the file.") from error
    _check_text(document, what)
    return document


@dataclass
class _Open:
    """An open collection, with its size once every alias is expanded."""

    anchor: str | None
    values: int = 1
    height: int = 0


@dataclass
class _Shape:
    """The size of a document, which aliases may multiply."""

    open: list[_Open] = field(default_factory=list)
    anchored: dict[str, tuple[int, int]] = field(default_factory=dict)
    values: int = 0

    def take(self, event: Any) -> None:
        """Count an event.

        Raises:
            ValueError: the document is too large or too deep, or contains itself.
        """
        if isinstance(event, yaml.CollectionStartEvent):
            self.open.append(_Open(event.anchor))
            self._check(1, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            done = self.open.pop()
            self._add(done.anchor, done.values, done.height + 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchored:
                raise ValueError("an alias has no complete anchor before it. Write out the value")
            values, height = self.anchored[event.anchor]
            self._check(values, height)
            self._add(None, values, height)
        elif isinstance(event, yaml.ScalarEvent):
            self._check(1, 0)
            self._add(event.anchor, 1, 0)

    def _add(self, anchor: str | None, values: int, height: int) -> None:
        if anchor:
            self.anchored[anchor] = values, height
        if self.open:
            parent = self.open[-1]
            parent.values += values
            parent.height = max(parent.height, height)

    def _check(self, values: int, height: int) -> None:
        self.values += values
        if self.values > MAX_NODES or len(self.open) + height > MAX_DEPTH:
            raise ValueError(f"nested more than {MAX_DEPTH} deep, or more than {MAX_NODES} values. Make it smaller")


def _check_events(text: str, what: str) -> None:
    """Refuse a document that would grow without bound, before anything is built."""
    shape, documents = _Shape(), 0
    for event in yaml.parse(text, Loader=_Loader):
        documents += isinstance(event, yaml.DocumentStartEvent)
        where = f"{what}:{event.start_mark.line + 1}"
        if documents > 1:
            raise InputError(f"{where} begins a second document", expected="one per file", remedy="Remove it.")
        if getattr(event, "tag", None):
            raise InputError(f"{where} has a tag such as !!binary, which is not allowed", remedy="Remove it.")
        try:
            shape.take(event)
        except ValueError as error:
            problem, _, remedy = str(error).partition(". ")
            raise InputError(f"{where}: {problem}", remedy=f"{remedy}.") from error


def _check_text(value: Any, what: str) -> None:
    """Refuse characters that processes, databases or terminals reject; the depth is already bounded."""
    match value:
        case str():
            if match := UNPRINTABLE.search(value):
                raise InputError(
                    f"{what} has a character that is not printable",
                    found=f"U+{ord(match[0]):04X}",
                    remedy="Remove it.",
                )
        case dict():
            for key, item in value.items():
                _check_text(key, what)
                _check_text(item, what)
        case list():
            for item in value:
                _check_text(item, what)
        case _:
            pass


def _refuse(node: Any, problem: str) -> NoReturn:
    raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
