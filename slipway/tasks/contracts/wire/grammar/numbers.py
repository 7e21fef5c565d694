"""Decimal numbers within bounds, as regular languages. Pure.

A number that is written has at most 15 significant digits: two different ones are then different as doubles too, so
what is below a bound in decimals is below it in every program that reads it (IEEE 754: DBL_DIG is 15).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from . import GrammarError
from .regular import DIGIT, EMPTY, Chars, Regex, Repeat, Shared, chain, choice, one_of, optional, text

DIGITS = 15
MAX_FRACTION = 40
"""Digits after the point, for bounds that are close to zero."""
MAX_RESIDUES = 1024
"""Remainders times places of digits: the parts of which numbers that are multiples of another are made."""
MAX_AGREED = 100_000
"""Multiples of a decimal that doubles do not hold, which are looked at one by one: with MAX_ENDS, within a second of a
CPU."""
MAX_ENDS = 12_000
"""Beginnings of such multiples, and different ends. Each end is a part of a grammar, of which there are no more."""
SURELY_ROUNDED = Fraction(1, 2**54)
"""The error of a divisor by which no quotient that is a whole number is rounded to another one: half of the last bit
of a double below a power of two."""
QUARTERS, HELD_PLACES = 4, 2
"""The finest part of a multiple that doubles hold, and its digits behind the point."""
MAX_LISTED = 64
"""Multiples within bounds that are listed rather than computed digit by digit."""


MOST = 9
ZERO = Chars(((48, 48),))


@dataclass(frozen=True)
class Bounds:
    """What a number may be. An absent end is open.

    Attributes:
        whole: without a point.
        multiple_of: above 0; every number is this one times a whole number. None for all.
    """

    whole: bool
    low: Decimal | None = None
    high: Decimal | None = None
    above_low: bool = False
    below_high: bool = False
    multiple_of: Decimal | None = None

    @property
    def is_free(self) -> bool:
        """Whether every number will do."""
        return self.low is None and self.high is None and self.multiple_of is None

    def allow(self, number: float) -> bool:
        """Whether a number is within the bounds, and a multiple by decimals and by doubles alike."""
        value = Decimal(repr(number))
        if self.low is not None and (value < self.low or (self.above_low and value == self.low)):
            return False
        if self.high is not None and (value > self.high or (self.below_high and value == self.high)):
            return False
        step = self.multiple_of
        if step is None:
            return True
        return (Fraction(value) / Fraction(step)).denominator == 1 and (number / float(step)).is_integer()


def number_language(bounds: Bounds) -> Regex:
    """The numbers within bounds, as JSON writes them.

    Raises:
        GrammarError: there is none with so many digits, or they cannot be written as a small grammar.
    """
    if bounds.is_free:
        return _free(whole=bounds.whole)
    multiple = bounds.multiple_of
    if multiple is None:
        return _language(bounds)
    try:
        return _language(bounds)
    except GrammarError as error:
        raise GrammarError(f"multipleOf is {multiple}: {error}") from error


def _language(bounds: Bounds) -> Regex:
    """As number_language, of numbers that are not free."""
    multiple = bounds.multiple_of
    magnitudes = _magnitudes if multiple is None or _is_held_by_doubles(multiple) else _agreed_magnitudes
    options: list[Regex] = []
    if bounds.high is None or bounds.high > 0 or (bounds.high == 0 and not bounds.below_high):
        from_zero = bounds.low is None or bounds.low < 0
        low = Decimal(0) if from_zero or bounds.low is None else bounds.low
        options += magnitudes(_Span(low, bounds.high, bounds.above_low and not from_zero, bounds.below_high), bounds)
    if bounds.low is None or bounds.low < 0:
        from_zero = bounds.high is None or bounds.high >= 0
        low = Decimal(0) if from_zero or bounds.high is None else -bounds.high
        most = None if bounds.low is None else -bounds.low
        below = magnitudes(_Span(low, most, from_zero or bounds.below_high, bounds.above_low), bounds)
        options += [chain(text("-"), each) for each in below]
    if not options:
        raise GrammarError(f"there is no such number with at most {DIGITS} digits")
    return choice(options)


def _free(*, whole: bool) -> Regex:
    digits = chain(Chars(((ord("1"), ord("9")),)), Repeat(DIGIT, 0, DIGITS - 1))
    start = chain(optional(text("-")), choice([text("0"), digits]))
    if whole:
        return start
    exponent = chain(Chars(((69, 69), (101, 101))), optional(Chars(((43, 43), (45, 45)))), Repeat(DIGIT, 1, 2))
    return chain(start, optional(chain(text("."), Repeat(DIGIT, 1, DIGITS))), optional(exponent))


def _is_held_by_doubles(multiple: Decimal) -> bool:
    return Fraction(float(multiple)) == Fraction(multiple)


def _agreed_magnitudes(span: "_Span", bounds: Bounds) -> list[Regex]:
    """Multiples of a decimal that doubles do not hold, of which those that divide doubles say the same.

    jsonschema 4.26 and ajv 8 take a number whose quotient has no fraction, by which 0.07 is not a multiple of 0.01.
    Those near zero are looked at one by one. Beyond them are the multiples that doubles hold, as 0.25 is of 0.01.
    """
    step = Fraction(bounds.multiple_of or 1)
    places = _exponent(bounds.multiple_of or Decimal(1))
    if places > DIGITS:
        raise GrammarError(f"it has {places} digits behind the point; expected at most {DIGITS}")
    edge = Decimal(10) ** (len(str(int(MAX_AGREED * step))) - 1)
    first = _rounded_fraction(Fraction(span.low) / step, up=True, beyond=span.above_low)
    last = (
        None if span.high is None else _rounded_fraction(Fraction(span.high) / step, up=False, beyond=span.below_high)
    )
    if last is not None and last - first < MAX_AGREED:
        return [*_agreed(range(first, last + 1), step, places, whole=bounds.whole)]
    held = step * 5 ** max(fives for fives in range(places + 1) if step.denominator % 5**fives == 0)
    while held.denominator > QUARTERS:
        held *= 2
    is_rounded = abs(Fraction(float(step)) / step - 1) > SURELY_ROUNDED
    if places > DIGITS - len(str(edge)) or is_rounded or MAX_AGREED * step < 1:
        raise GrammarError(
            "validators disagree about its multiples. It is enforced between a minimum and a maximum with at most "
            f"{MAX_AGREED} multiples. Add bounds, or use a number that doubles hold"
        )
    near = range(first, math.ceil(Fraction(edge) / step))
    return [*_agreed(near, step, places, whole=bounds.whole), *_held_beyond(edge, held, span, bounds)]


def _held_beyond(edge: Decimal, held: Fraction, span: "_Span", bounds: Bounds) -> list[Regex]:
    """The numbers of a span from a power of ten on that are multiples of another one, which doubles hold."""
    if span.high is None and span.low <= edge and held.numerator == 1:
        parts = [] if bounds.whole else [str(Decimal(n) / held.denominator)[1:] for n in range(1, held.denominator)]
        digits = chain(Chars(((ord("1"), ord("9")),)), Repeat(DIGIT, len(str(edge)) - 1, DIGITS - 1 - HELD_PLACES))
        return [chain(digits, optional(one_of(parts)) if parts else EMPTY)]
    beyond = _Span(max(span.low, edge), span.high, span.above_low and span.low >= edge, span.below_high)
    return _magnitudes(beyond, replace(bounds, multiple_of=Decimal(held.numerator) / Decimal(held.denominator)))


@lru_cache(maxsize=8)
def _agreed(multiples: range, step: Fraction, places: int, *, whole: bool) -> tuple[Regex, ...]:
    """The numbers that are so many steps, and whose quotient by the step has no fraction in doubles either."""
    size, scale = float(step), 10**places // step.denominator
    behind: dict[int, list[int]] = {}
    for number in multiples:
        dividend = number * step.numerator
        if (dividend / step.denominator / size).is_integer():
            before, rest = divmod(dividend, step.denominator)
            if not (whole and rest):
                behind.setdefault(before, []).append(rest * scale)
        if len(behind) > MAX_ENDS:
            raise _too_many()
    shared: dict[tuple[object, ...], Regex] = {}
    sets = {each: _fractions(each, places, shared) for each in {tuple(found) for found in behind.values()}}
    ends = {str(before): sets[tuple(found)] for before, found in behind.items()}
    return (_digit_tree(sorted(ends), 0, ends, shared),) if ends else ()


def _fractions(numbers: Sequence[int], places: int, shared: dict[tuple[object, ...], Regex]) -> Regex:
    """What may follow the digits before the point: so many of the smallest places."""
    digits = [str(number).zfill(places).rstrip("0") for number in numbers if number]
    if not digits:
        return EMPTY
    behind = chain(text("."), _digit_tree(sorted(digits), 0, dict.fromkeys(digits, EMPTY), shared))
    return optional(behind) if 0 in numbers else behind


def _digit_tree(
    numbers: Sequence[str], place: int, ends: Mapping[str, Regex], shared: dict[tuple[object, ...], Regex]
) -> Regex:
    """These digits, all alike up to `place`, and what may follow them; what several have in common is written once."""
    end = ends[numbers[0]] if len(numbers[0]) == place else None
    longer = numbers if end is None else numbers[1:]
    groups: dict[Regex, list[int]] = {}
    for digit, alike in itertools.groupby(longer, key=lambda number: number[place]):
        groups.setdefault(_digit_tree(list(alike), place + 1, ends, shared), []).append(int(digit))
    if not groups:
        return end or EMPTY
    key = (end, *((rest, *digits) for rest, digits in groups.items()))
    if key not in shared:
        if len(shared) >= MAX_ENDS:
            raise _too_many()
        options = [chain(_digit_set(digits), rest) for rest, digits in groups.items()]
        shared[key] = Shared(choice([*([] if end is None else [end]), *options]))
    return shared[key]


def _too_many() -> GrammarError:
    return GrammarError("it has too many multiples there. Use a smaller one, or narrower bounds")


def _digit_set(digits: list[int]) -> Chars:
    return Chars(tuple((48 + first, 48 + last) for first, last in _runs(digits)))


@dataclass(frozen=True)
class _Span:
    """Magnitudes from one to another; None is without end."""

    low: Decimal
    high: Decimal | None
    above_low: bool
    below_high: bool


def _magnitudes(span: _Span, bounds: Bounds) -> list[Regex]:
    """Return one language for each number of digits before the point that the span has."""
    shared: dict[tuple[int, int], Regex | None] = {}
    found = (_Places(span, bounds, whole_digits, shared).language() for whole_digits in range(1, DIGITS + 1))
    return [each for each in found if each is not None]


class _Places:
    """Numbers with exactly so many digits before the point, read from left to right.

    A number is digits of a fixed count, those behind the point may be left out where they are zeros. `tight` to a bound
    means that all digits so far are those of the bound.
    """

    def __init__(
        self, span: _Span, bounds: Bounds, whole_digits: int, shared: dict[tuple[int, int], Regex | None]
    ) -> None:
        """`shared` has what may follow, by the digits before the point that are left and the remainder so far."""
        self._whole, self._shared = whole_digits, shared
        self._fraction = 0 if bounds.whole else self._places(span, bounds)
        scale = Decimal(10) ** self._fraction
        floor = 0 if whole_digits == 1 else 10 ** (whole_digits - 1) * int(scale)
        self._low = max(floor, _rounded(span.low * scale, up=True, beyond=span.above_low))
        self._high = 10**whole_digits * int(scale) - 1
        if span.high is not None:
            self._high = min(self._high, _rounded(span.high * scale, up=False, beyond=span.below_high))
        self._step = 1 if bounds.multiple_of is None else int(bounds.multiple_of * scale)
        if bounds.multiple_of is not None and bounds.whole:
            self._step = Fraction(bounds.multiple_of).numerator

    def _places(self, span: _Span, bounds: Bounds) -> int:
        """Digits behind the point."""
        if bounds.multiple_of is not None:
            return _exponent(bounds.multiple_of)
        small = span.high is not None and 0 < span.high < 1
        zeros = -span.high.adjusted() - 1 if span.high is not None and small else 0
        return min(MAX_FRACTION, DIGITS + zeros if self._whole == 1 and small else DIGITS - self._whole)

    def language(self) -> Regex | None:
        """All numbers; None where there are none."""
        step = self._step
        first, last = -(-self._low // step) * step, self._high // step * step
        if first > last:
            return None
        if step > 1 and (last - first) // step < MAX_LISTED:
            return one_of(self._written(value) for value in range(first, last + 1, step))
        if step > 1 and step * (self._whole + self._fraction) > MAX_RESIDUES:
            raise _too_many()
        width = self._whole + self._fraction
        self._digits_low = tuple(map(int, str(self._low).zfill(width)))
        self._digits_high = tuple(map(int, str(self._high).zfill(width)))
        return self._rest(0, low=True, high=True, residue=0)

    def _written(self, value: int) -> str:
        digits = str(value).zfill(self._whole + self._fraction)
        whole, fraction = digits[: self._whole], digits[self._whole :].rstrip("0")
        return f"{whole}.{fraction}" if fraction else whole

    def _rest(self, place: int, *, low: bool, high: bool, residue: int) -> Regex | None:
        """What may follow after `place` digits; None where nothing fits."""
        if low or high or self._step == 1:
            return self._ends_or_goes_on(place, low=low, high=high, residue=residue)
        key = (self._whole - place, residue)
        if key not in self._shared:
            part = self._ends_or_goes_on(place, low=False, high=False, residue=residue)
            self._shared[key] = part if part is None or part == EMPTY else Shared(part)
        return self._shared[key]

    def _ends_or_goes_on(self, place: int, *, low: bool, high: bool, residue: int) -> Regex | None:
        more = self._digits(place, low=low, high=high, residue=residue)
        if place < self._whole:
            return more
        ends = self._may_end(place, low=low, residue=residue)
        if place == self._whole and more is not None:
            more = chain(text("."), more)
        if more is None:
            return EMPTY if ends else None
        return optional(more) if ends else more

    def _may_end(self, place: int, *, low: bool, residue: int) -> bool:
        """Whether the number fits if only zeros follow, which are never above the upper bound."""
        rest = self._whole + self._fraction - place
        return not (low and any(self._digits_low[place:])) and residue * 10**rest % self._step == 0

    def _digits(self, place: int, *, low: bool, high: bool, residue: int) -> Regex | None:
        """At least one more digit, and what follows."""
        width = self._whole + self._fraction
        low = low and any(self._digits_low[place:])
        high = high and any(digit != MOST for digit in self._digits_high[place:])  # else it limits nothing
        if place == width:
            return None
        if high and place >= self._whole and self._step == 1 and not any(self._digits_high[place:]):
            return None if low else Repeat(ZERO, 1, width - place)
        if not low and not high and self._step == 1:
            return self._any_digits(place)
        least = self._digits_low[place] if low else 0
        most = self._digits_high[place] if high else MOST
        groups: dict[Regex, list[int]] = {}
        for digit in range(least, most + 1):
            rest = self._rest(
                place + 1,
                low=low and digit == least,
                high=high and digit == most,
                residue=(residue * 10 + digit) % self._step,
            )
            if rest is not None:
                groups.setdefault(rest, []).append(digit)
        options = [chain(_digit_set(digits), rest) for rest, digits in groups.items()]
        return choice(options) if options else None

    def _any_digits(self, place: int) -> Regex:
        left, fraction = self._whole - place, self._fraction
        if left <= 0:
            return Repeat(DIGIT, 1, self._whole + fraction - place)
        whole = Repeat(DIGIT, left, left)
        return chain(whole, optional(chain(text("."), Repeat(DIGIT, 1, fraction)))) if fraction else whole


def _runs(digits: list[int]) -> list[tuple[int, int]]:
    runs = itertools.groupby(enumerate(digits), key=lambda pair: pair[1] - pair[0])
    groups = [[digit for _, digit in run] for _, run in runs]
    return [(group[0], group[-1]) for group in groups]


def _rounded(value: Decimal, *, up: bool, beyond: bool) -> int:
    """The nearest whole number on this side of a bound, or beyond it where the bound itself is excluded."""
    rounded = int(value.to_integral_value(ROUND_CEILING if up else ROUND_FLOOR, Context(prec=400)))
    if beyond and rounded == value:
        return rounded + 1 if up else rounded - 1
    return rounded


def _rounded_fraction(value: Fraction, *, up: bool, beyond: bool) -> int:
    """As _rounded."""
    rounded = math.ceil(value) if up else math.floor(value)
    if beyond and rounded == value:
        return rounded + 1 if up else rounded - 1
    return rounded


def _exponent(value: Decimal) -> int:
    """Digits behind its point."""
    exponent = value.normalize(Context(prec=400)).as_tuple().exponent
    return max(0, -int(exponent))
