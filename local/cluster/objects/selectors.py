"""Label and field selectors, in query strings and in specs.

Grammar of the label selector: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from .resources import Object
from .status import bad_request

Labels = Mapping[str, str]
Test = Callable[[Labels], bool]
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALS = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<sign>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_EXISTS = re.compile(r"^(?P<no>!?)\s*(?P<key>[^\s=!,()]+)$")


class Selector:
    """The label and field selectors of a LIST or WATCH."""

    def __init__(self, labels: str = "", fields: str = "") -> None:
        """Parse both query parameters.

        Raises:
            ApiError: 400, one of them cannot be parsed.
        """
        self._tests = [_label_test(term) for term in _terms(labels)]
        self._fields = [_field_term(term) for term in _terms(fields)]

    def matches(self, item: Object | None) -> bool:
        """Whether `item` exists and matches."""
        if item is None:
            return False
        labels = item["metadata"].get("labels") or {}
        if not all(test(labels) for test in self._tests):
            return False
        return all((str(_at(item, path)) == value) is equal for path, value, equal in self._fields)


def matches_spec(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Whether a LabelSelector of a spec matches `labels`; an absent or empty selector matches nothing."""
    if not selector:
        return False
    match_labels = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in match_labels.items()):
        return False
    return all(_expression(term, labels) for term in selector.get("matchExpressions") or [])


def _expression(term: Mapping[str, Any], labels: Labels) -> bool:
    key, values = term["key"], term.get("values") or []
    match term["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case _:
            return False


def _terms(text: str) -> list[str]:
    return [term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip()]


def _label_test(term: str) -> Test:
    if match := _SET.match(term):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        expects_member = match["word"] == "in"
        return lambda labels: (labels.get(key) in values) is expects_member
    if match := _EQUALS.match(term):
        key, value, equal = match["key"], match["value"], match["sign"] != "!="
        return lambda labels: (labels.get(key) == value) is equal
    if match := _EXISTS.match(term):
        key, there = match["key"], not match["no"]
        return lambda labels: (key in labels) is there
    raise bad_request(f"unable to parse requirement: {term!r} is not a label selector")


def _field_term(term: str) -> tuple[list[str], str, bool]:
    match = _EQUALS.match(term)
    if match is None:
        raise bad_request(f"invalid field selector {term!r}: want path=value or path!=value")
    return match["key"].split("."), match["value"], match["sign"] != "!="


def _at(item: Object, path: list[str]) -> Any:
    value: Any = item
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else value
