"""Kubernetes quantities as numbers: 512Mi, 500m, 1.5G.

Suffixes: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from fractions import Fraction

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
    """The number that `text` stands for.

    Raises:
        ValueError: it is no quantity.
    """
    word = str(text).strip()
    for suffix, factor in (_BINARY | _DECIMAL).items():
        if word.endswith(suffix):
            return Fraction(word.removesuffix(suffix)) * factor
    return Fraction(word)
