"""Kubernetes quantities as numbers: 512Mi, 500m, 1.5G.

Suffixes: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any

Amounts = dict[str, tuple[Fraction, bool]]  # values by resource, and whether they are written with binary suffixes
BINARY_STEP = 1024

_BINARY: dict[str, int | Fraction] = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL: dict[str, int | Fraction] = {
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
    "m": Fraction(1, 1000),
}


def quantity(text: str | float) -> Fraction:
    """The value of `text`.

    Raises:
        ValueError: it is not a quantity.
    """
    word = str(text).strip()
    for suffix, factor in (_BINARY | _DECIMAL).items():
        if word.endswith(suffix):
            return Fraction(word.removesuffix(suffix)) * factor
    return Fraction(word)


def is_binary(text: str | float) -> bool:
    """Whether a quantity is written with Ki, Mi, Gi, ..."""
    return str(text).strip().endswith("i")


def format_quantity(value: Fraction, binary: bool) -> str:
    """The canonical text: the largest suffix that leaves a whole number, as Kubernetes writes quantities."""
    if binary and value.denominator == 1 and abs(value) >= BINARY_STEP:
        for suffix, factor in reversed(_BINARY.items()):
            if value % factor == 0:
                return f"{value // factor}{suffix}"
        return str(value)
    if value.denominator != 1:
        return f"{ceil(value * 1000)}m"
    for suffix, factor in reversed(list(_DECIMAL.items())[:-1]):
        if value and value % factor == 0:
            return f"{value // factor}{suffix}"
    return str(value)


def canonical(text: str) -> str:
    """A quantity as Kubernetes writes it."""
    return format_quantity(quantity(text), is_binary(text))


def add(one: Amounts, other: Amounts) -> Amounts:
    """The sums; each has the format of its first summand that is not zero."""
    total = dict(one)
    for name, (value, binary) in other.items():
        before, before_binary = total.get(name, (Fraction(0), binary))
        total[name] = (before + value, before_binary if before else binary)
    return total


def texts(amounts: Amounts) -> dict[str, str]:
    """Every amount in its canonical text."""
    return {name: format_quantity(*amount) for name, amount in amounts.items()}


def pod_amounts(spec: Mapping[str, Any], part: str) -> dict[str, tuple[Fraction, str]]:
    """How much of each resource a pod needs, with the canonical text. `part` is requests or limits.

    Containers run together, so their amounts are summed; init containers run one by one, so the largest counts.
    """

    def amounts(container: Mapping[str, Any]) -> Amounts:
        given = (container.get("resources") or {}).get(part) or {}
        return {name: (quantity(text), is_binary(text)) for name, text in given.items()}

    total: Amounts = {}
    for container in spec["containers"]:
        total = add(total, amounts(container))
    for container in spec.get("initContainers") or []:
        for name, amount in amounts(container).items():
            total[name] = max(total.get(name, amount), amount, key=lambda one: one[0])
    return {name: (amount[0], format_quantity(*amount)) for name, amount in total.items()}
