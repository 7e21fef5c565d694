"""A fleet: one spec whose `engine.gpu` or `serving.shape` is a list becomes a model for each entry. Pure.

Below the readers of spec files nothing knows of lists: each member is a spec of its own, with its own name, channel,
gate and rollout (docs/decisions/0051).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slipway.tasks.contracts.base import read_contract
from slipway.tasks.contracts.documents import parse_document, positions_in
from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.redaction import excerpt, field_name, redacted
from slipway.tasks.contracts.spec.merge_patch import merged, patch_between
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.spec_fields import FLEET_SECTIONS, MAX_MEMBERS, MAX_NAME_CHARS
from slipway.tasks.contracts.violations import Loc, Positions

PLACES = (("engine", "gpu"), ("serving", "shape"))
"""Fields that may be a list: GPU products, or shapes of servers on CPU."""
VENDOR = "nvidia-"
"""Begins the label of nearly every product, and is left out of names."""
FOUND_CHARS = 60
PLACE_CHARS = 63
"""The longest value of a Kubernetes label, as which a node has its product."""
FLEETS = "fleet__"
"""Begins the id of the DAG that releases a fleet, and of the runs that it starts."""


@dataclass(frozen=True)
class SpecFile:
    """What a spec's file describes: one model, or the members of a fleet."""

    name: str
    models: tuple[ReleaseSpec, ...]
    is_fleet: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The fleet's name, if it is one, and that of each model."""
        names = tuple(model.name for model in self.models)
        return (self.name, *names) if self.is_fleet else names


def member_run(run_id: str) -> str:
    """The id of the runs in which a run of the fleet's DAG releases its members.

    It begins as no id does that Airflow itself gives, such as scheduled__, and that it would refuse for another run.
    """
    return f"{FLEETS}{run_id}"


def parse_specs(data: bytes, what: str) -> SpecFile:
    """Parse and validate a spec's file.

    Raises:
        InputError: it is not a document (see parse_document), not a valid spec, or one of its members is not. Names
            lines and columns.
    """
    return read_specs(parse_document(data, what), what, positions_in(data))


def read_specs(document: Any, what: str, positions: Positions | None = None) -> SpecFile:
    """Validate a spec's document; see parse_specs."""
    if not is_fleet(document):
        spec = read_contract(ReleaseSpec, document, what, positions)
        return SpecFile(spec.name, (spec,))
    listed = _lists(document)
    if len(listed) != 1:
        raise InputError(
            f"{what} describes a fleet",
            found=" and ".join(".".join(place) for place in listed) or "fleet, but no list of places",
            expected="a list in engine.gpu, or in serving.shape for servers on CPU",
            remedy="Correct the spec: docs/serving-on-gpus.md, Several GPU products from one spec.",
        )
    return _fleet(document, *listed[0], what, positions)


def is_fleet(document: Any) -> bool:
    """Whether a spec's document means a fleet; it need not be valid."""
    return bool(_lists(document)) or (isinstance(document, dict) and "fleet" in document)


def _lists(document: Any) -> list[tuple[str, str]]:
    return [(section, field) for section, field in PLACES if isinstance(_field(document, section, field), list)]


def _fleet(document: dict[str, Any], section: str, field: str, what: str, positions: Positions | None) -> SpecFile:
    places = _checked_places(_field(document, section, field), f"{what}: {section}.{field}")
    changes = _checked_changes(document.get("fleet", {}), places, f"{what}: fleet")
    members: list[ReleaseSpec] = []
    errors: dict[str, InputError] = {}
    for place in places:
        found_at = positions and _positions_of(place, changes.get(place, {}), document, positions)
        try:
            own = {section: {field: place}, **_name_of(document, place, what)}
            members.append(read_contract(ReleaseSpec, _member(document, place, own), what, found_at))
        except InputError as error:
            errors[place] = error
    if errors:
        raise _of_all(errors, places)
    _check_groups(members, what)
    return SpecFile(document["name"], tuple(members), is_fleet=True)


def _member(document: Mapping[str, Any], place: str, own: Mapping[str, Any]) -> Any:
    base = {key: value for key, value in document.items() if key != "fleet"}
    return merged(merged(base, document.get("fleet", {}).get(place, {})), own)


def member_documents(document: Mapping[str, Any], models: Iterable[ReleaseSpec]) -> dict[str, dict[str, Any]]:
    """The document of each member of a valid fleet, as if it had a spec of its own, by its entry of the list."""
    ((section, field),) = _lists(document)
    named = zip(document[section][field], models, strict=True)
    return {place: _member(document, place, {section: {field: place}, "name": model.name}) for place, model in named}


def fleet_document(document: Mapping[str, Any], members: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The document of the fleet whose members have these documents; `document` is what they had before.

    What differs from the first member that had no part in `fleet` before, or else from the first, is in `fleet`.
    """
    ((section, field),) = _lists(document)
    of_all = {"name": document["name"], section: {field: document[section][field]}}
    bases = {place: merged(member, of_all) for place, member in members.items()}
    as_the_spec = [bases[place] for place in bases if not document.get("fleet", {}).get(place)]
    base: dict[str, Any] = next(iter(as_the_spec or bases.values()))
    changes = {place: change for place, each in bases.items() if (change := patch_between(base, each))}
    return base | ({"fleet": changes} if changes else {})


def _positions_of(place: str, change: Any, base: Any, positions: Positions) -> Positions:
    """Finds a place of a member's document where it was written: below `fleet`, or in the spec."""
    return lambda loc: positions(("fleet", place, *loc) if _is_below_fleet(loc, change, base) else loc)


def _is_below_fleet(loc: Loc, change: Any, base: Any) -> bool:
    """Whether a merge patch wrote what a member has at this place."""
    written = False
    for part in loc:
        if not isinstance(change, dict):  # a list or a value replaces the spec's whole
            return True
        if part in change:
            change, base, written = change[part], base.get(part) if isinstance(base, dict) else None, True
        elif isinstance(base, dict) and part in base:
            return False
    return written


def _of_all(errors: Mapping[str, InputError], places: list[str]) -> InputError:
    """One error of all members; what is wrong in several is said once."""
    places_of: dict[str, list[str]] = {}
    for place, error in errors.items():
        statement = str(error).removesuffix(error.remedy).rstrip(" .")
        places_of.setdefault(statement, []).append(place)
    texts = [
        f"{statement}, in " + ("every member of the fleet" if where == places else f"the fleet's {' and '.join(where)}")
        for statement, where in places_of.items()
    ]
    return InputError("; ".join(texts), remedy=" ".join(dict.fromkeys(error.remedy for error in errors.values())))


def _checked_places(places: list[Any], what: str) -> list[str]:
    """The entries of the list, of which each makes a name of its own.

    Raises:
        InputError: they do not.
    """
    if not 1 <= len(places) <= MAX_MEMBERS:
        raise InputError(
            f"{what} is a list",
            found=f"{len(places)} entries",
            expected=f"1 to {MAX_MEMBERS}",
            remedy="Correct the list, or give one of its entries instead of it.",
        )
    suffixes: dict[str, Any] = {}
    for place in places:
        suffix = suffix_of(place) if _is_place(place) else ""
        if not suffix or suffix in suffixes:
            raise InputError(
                f"{what} names the members of a fleet",
                found=excerpt(repr(place), FOUND_CHARS) + (f" beside {suffixes[suffix]!r}" if suffix else ""),
                expected=f"texts of at most {PLACE_CHARS} characters that differ in more than case and punctuation",
                remedy="Correct the list.",
            )
        suffixes[suffix] = place
    return places


def _is_place(place: Any) -> bool:
    """Whether an entry may be shown, and become a part of names: anything else could be a pasted token."""
    return isinstance(place, str) and len(place) <= PLACE_CHARS and place == redacted(place)


def _checked_changes(changes: Any, places: list[str], what: str) -> Mapping[str, dict[str, Any]]:
    """What differs from the spec at each place.

    Raises:
        InputError: it is not of a place in the list, or not of a section that may differ.
    """
    if not isinstance(changes, dict) or not all(isinstance(change, dict) for change in changes.values()):
        raise InputError(
            f"{what} is not valid",
            expected="a mapping from entries of the list to the sections that differ there",
            remedy="Correct it.",
        )
    if unknown := sorted(changes.keys() - set(places)):
        raise InputError(
            f"{what} names {excerpt(unknown[0], FOUND_CHARS)}, which is not in the list",
            expected=", ".join(places),
            remedy="Correct it, or add it to the list.",
        )
    for place, change in changes.items():
        if unknown := sorted(change.keys() - set(FLEET_SECTIONS)):
            raise InputError(
                f"{what}.{place} has {field_name(unknown[0])}, in which members of a fleet cannot differ",
                expected=", ".join(FLEET_SECTIONS),
                remedy="Move it to the spec, or write a spec of its own for that place.",
            )
    return changes


def suffix_of(place: str) -> str:
    """What a member's name has after the fleet's: `a100-sxm4-80gb` of the product NVIDIA-A100-SXM4-80GB."""
    return re.sub(r"[^a-z0-9]+", "-", place.lower().removeprefix(VENDOR)).strip("-")


def _name_of(document: dict[str, Any], place: str, what: str) -> dict[str, str]:
    """The member's name as a part of its document; none if the fleet has none, which validation says.

    Raises:
        InputError: it would be too long for Kubernetes.
    """
    if not isinstance(document.get("name"), str):
        return {}
    name = f"{document['name']}-{suffix_of(place)}"
    if len(name) > MAX_NAME_CHARS:
        raise InputError(
            f"{what}: the name of the fleet's member {excerpt(name, FOUND_CHARS)} is too long",
            found=f"{len(name)} characters",
            expected=f"at most {MAX_NAME_CHARS}",
            remedy="Shorten the fleet's name.",
        )
    return {"name": name}


def _check_groups(members: list[ReleaseSpec], what: str) -> None:
    """Refuse members in one server, which has one shape.

    Raises:
        InputError: two of them are in one group.
    """
    groups = [member.serving.group for member in members if member.serving.group is not None]
    if len(set(groups)) < len(groups):
        raise InputError(
            f"{what}: members of a fleet share serving.group, and a group's server has one shape",
            found=redacted(", ".join(groups)),
            remedy="Remove serving.group, or give each member a group of its own below fleet.",
        )


def _field(document: Any, section: str, field: str) -> Any:
    part = document.get(section) if isinstance(document, dict) else None
    return part.get(field) if isinstance(part, dict) else None
