"""JSON schemas that Slipway enforces: a table that has every keyword and format, and generated combinations of them."""

import json
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from slipway.tasks.contracts.wire.grammar.formats import PATTERNS
from tests.support.paths import REPOSITORY

CHECKER = Draft202012Validator.FORMAT_CHECKER

NODE = {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["n"]}
SMALL = {"type": "integer", "minimum": 1, "maximum": 3}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": SMALL}, "required": ["kind", "lives"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}, "owner": {"type": "null"}}}
ZOD_EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
TABLE = [
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "minimum": 0.5, "maximum": 0.75},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "exclusiveMaximum": -0.25, "format": "double"},
    {"type": "number", "minimum": -1e-5, "maximum": 2.5e-7},
    {"type": "number", "multipleOf": 0.25, "minimum": -3, "maximum": 3},
    {"type": "integer", "minimum": 7},
    {"type": "integer", "minimum": 10, "maximum": 120},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "multipleOf": 7},
    {"type": "integer", "format": "uint32", "exclusiveMinimum": 4, "exclusiveMaximum": 4e6},
    {"type": "string", "maxLength": 10},
    {"type": "string", "minLength": 3, "maxLength": 3},
    *({"type": "string", "format": name} for name in PATTERNS),
    {"type": "string", "format": "email", "pattern": ZOD_EMAIL},
    {"type": "string", "pattern": r"^(1|1\.25|1\.5|1\.75)$"},
    {"type": "string", "pattern": "a.c", "maxLength": 5},
    {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "[b-d]$"}], "maxLength": 6},
    {"enum": ["1", "1.25", "1.5", "1.75", 1, 1.25, 1.5, 1.75, None]},
    {"const": "x\ny"},
    {"type": "object", "properties": {"é": SMALL, 'b"c': {"type": "null"}}, "required": ["é"]},
    {"type": "object", "properties": {"a": SMALL}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"a": SMALL, "b": {"not": {}}}, "unevaluatedProperties": False},
    {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": SMALL, "maxProperties": 3},
    {"type": "object", "propertyNames": {"enum": ["a", "é"]}, "additionalProperties": SMALL, "minProperties": 1},
    {"type": "array", "prefixItems": [SMALL, {"type": "null"}], "minItems": 2, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "maxItems": 3},
    {"type": "array", "items": SMALL, "minItems": 1, "uniqueItems": False},
    {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1},
    {"type": "number", "multipleOf": 0.1, "exclusiveMinimum": -20, "maximum": 20},
    {"type": "number", "multipleOf": 0.01, "minimum": 0},
    {"type": "number", "multipleOf": 0.05, "minimum": -2, "maximum": 1e6},
    {
        "type": "array",
        "items": {"type": ["integer", "boolean"], "minimum": 1, "exclusiveMaximum": 6},
        "uniqueItems": True,
    },
    {
        "type": "array",
        "items": {"anyOf": [{"$ref": "four"}, {"const": 7}]},
        "uniqueItems": True,
        "minItems": 2,
        "$defs": {"4": {"$id": "four", "type": "integer", "minimum": 2, "maximum": 9, "multipleOf": 4}},
    },
    {"type": "string", "enum": ["a", "bc", "", "b"], "maxLength": 1, "pattern": "^[ab]"},
    {"type": ["number", "null"], "enum": [1, 2.5, 7, None], "exclusiveMinimum": 1, "multipleOf": 0.5},
    {"$ref": "#/$defs/N", "minimum": 2, "$defs": {"N": SMALL}},
    {"type": "object", "patternProperties": {"^x[0-9]$": SMALL}, "additionalProperties": False, "maxProperties": 2},
    {
        "type": "object",
        "properties": {"a": SMALL},
        "required": ["a"],
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    },
    {"type": "array", "items": {"type": "string", "enum": ["a", 1, "b"]}, "uniqueItems": True},
    {"type": "object", "properties": {"patternProperties": {"enum": ["a"]}, "$ref": SMALL}, "required": ["$ref"]},
    {"$ref": "#small", "$defs": {"a/b": {"$anchor": "small", **SMALL}}},
    {"type": "string", "format": "of-a-library", "pattern": r"^(?:[0-9A-F]{2}:){2}[0-9A-F]{2}$"},
    {"type": "array", "items": {"enum": ["a", "é", 1, 1.0, True]}, "uniqueItems": True},
    {"type": "array", "items": {"enum": ["a", "b", "c", "d"]}, "uniqueItems": True, "minItems": 2, "maxItems": 3},
    {"type": ["string", "null"], "maxLength": 2},
    {"oneOf": [CAT, DOG]},
    {"oneOf": [{"type": "string", "maxLength": 2}, SMALL, {"enum": [None, True]}, CAT]},
    {"oneOf": [{"properties": {"a": SMALL}, "required": ["a"], "additionalProperties": False}, {"required": ["b"]}]},
    {"allOf": [{"$ref": "#/$defs/N"}], "$defs": {"N": SMALL}},
    {"allOf": [CAT, {"properties": {"lives": {"maximum": 2}, "of": {"$ref": "#/$defs/N"}}}], "$defs": {"N": SMALL}},
    {"type": "integer", "allOf": [{"minimum": 3}, {"minimum": 2, "maximum": 9}, {"exclusiveMaximum": 8}]},
    {"type": "string", "allOf": [{"allOf": [{"pattern": "^a"}]}, {"pattern": "b"}, {"pattern": "c$"}], "maxLength": 5},
    {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"allOf": [{"properties": {"id": SMALL}, "required": ["id"]}, {"oneOf": [CAT, DOG]}], "type": "object"},
    {"allOf": [{"anyOf": [CAT, {"type": "null"}]}, {"anyOf": [DOG, CAT, {"enum": [None, 1]}]}]},
    {"$ref": "#/$defs/N", "$defs": {"N": NODE}},
    {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "dependentRequired": {"a": ["b"]}},
    {
        "type": ["object", "null"],
        "properties": {"a": SMALL, "b": SMALL, "c": SMALL},
        "dependentRequired": {"a": ["b"], "b": ["c"]},
    },
    {
        "type": "object",
        "properties": {"kind": {"enum": ["x", "y"]}, "a": {"type": "integer"}},
        "required": ["kind"],
        "dependentSchemas": {"kind": {"properties": {"a": SMALL}}, "a": {"properties": {"kind": {"const": "x"}}}},
    },
    {"type": "object", "properties": {"a": SMALL, "b": SMALL}, "dependentSchemas": {"a": False}},
    {"type": "array", "prefixItems": [SMALL], "unevaluatedItems": {"type": "null"}, "maxItems": 3},
    {"type": "array", "prefixItems": [SMALL, {"type": "null"}], "unevaluatedItems": False},
]
"""`additionalItems` is of drafts before 2020-12, by which nothing here is judged."""

ZOD = json.loads((REPOSITORY / "tests" / "fixtures" / "zod" / "schemas.json").read_text())["schemas"]
"""What zod writes for types by name: record.mjs beside it wrote the file."""
NOT_OF_ZOD = {
    "emoji": r"\\p",  # its pattern has \\p, whose characters change with each version of Unicode
    "hostname": "states",  # its pattern counts to 253 and to 61 at once
    "jwt": "jwt",  # a signature, which no grammar makes; zod writes no pattern for it
}
"""Types whose schemas are refused, and the word that names why."""


def validator(schema):
    """The judge of values, with every format checked."""
    return Draft202012Validator(schema, format_checker=CHECKER)


@dataclass(frozen=True)
class Case:
    """A generated schema, and a strategy of values that obey it, as a grammar writes them."""

    schema: dict
    values: st.SearchStrategy


NAMES = ("a", "b", "é", "a b", 'q"')
ALPHABET = 'abz 09-é"\\\n/😀'
BY_FORMAT = {
    "date": "2024-02-29",
    "time": "23:59:59Z",
    "date-time": "2024-02-29T00:00:00.5+01:30",
    "duration": "P1DT2H",
    "email": "a.b@example.org",
    "hostname": "a-b.example",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/a?b=c",
    "uuid": "00000000-0000-4000-8000-00000000000a",
}
BY_PATTERN = ("^[a-c]{2,4}$", "^(a|bc)+$", r"^\d{1,3}-[x-z]?$", "^[A-Z][a-z]*$", r"^(?!ab)[a-c]+$")
LISTED = st.sampled_from(["a", "ab", "abc", "b", "é", 1, 2.5, 25, True, None, {"a": 1}, [1]])


def _some(draw, keywords):
    """Some of these keywords, each with its value drawn."""
    return {name: draw(value) for name, value in keywords.items() if draw(st.booleans())}


@st.composite
def integers(draw):
    """Whole numbers with bounds, or multiples of one."""
    if draw(st.booleans()):
        step = draw(st.sampled_from([2, 5, 10]))
        return Case({"type": "integer", "multipleOf": step}, st.integers(-1000, 1000).map(lambda n: n * step))
    low = draw(st.integers(-(10**6), 10**6) | st.integers(-12, 12))
    high = low + draw(st.integers(1, 10**6) | st.integers(1, 20))
    bounds = _some(draw, {"minimum": st.just(low), "maximum": st.just(high)})
    bounds |= _some(draw, {"exclusiveMinimum": st.just(low - 1), "exclusiveMaximum": st.just(high + 1)})
    return Case({"type": "integer", **bounds}, st.integers(low, high))


@st.composite
def numbers(draw):
    """Numbers with bounds of few digits."""
    low = draw(st.decimals(-1000, 1000, places=2) | st.decimals(-1, 1, places=3))
    high = low + draw(st.decimals(1, 100, places=1) | st.decimals("0.002", 1, places=3))
    bounds = _some(draw, {"minimum": st.just(float(low)), "exclusiveMaximum": st.just(float(high))})
    inner = st.decimals(low, high, places=3).map(lambda value: float(value) + 0.0)
    return Case({"type": "number", **bounds}, inner)


@st.composite
def strings(draw):
    """Texts with bounds, a format or a pattern."""
    kind = draw(st.sampled_from(["free", "bounded", "format", "pattern"]))
    if kind == "free":
        return Case({"type": "string"}, st.text(ALPHABET, max_size=6))
    if kind == "bounded":
        least, more = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        size = {"minLength": least, "maxLength": least + more}
        return Case({"type": "string", **size}, st.text(ALPHABET, min_size=least, max_size=least + more))
    if kind == "format":
        name = draw(st.sampled_from(sorted(BY_FORMAT)))
        return Case({"type": "string", "format": name}, st.just(BY_FORMAT[name]))
    pattern = draw(st.sampled_from(BY_PATTERN))
    schema = {"type": "string", "pattern": pattern, **_some(draw, {"maxLength": st.integers(4, 8)})}
    return Case(schema, st.from_regex(pattern, fullmatch=True, alphabet=st.characters(codec="ascii")))


@st.composite
def listed(draw):
    """An enum or a const of values of any type."""
    values = draw(st.lists(LISTED, min_size=1, max_size=5, unique_by=json.dumps))
    schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
    return Case(schema, st.sampled_from(values))


@st.composite
def arrays(draw, inner):
    """Arrays with first items of their own, others, and bounds."""
    first, rest = draw(st.lists(inner, max_size=2)), draw(inner)
    least = len(first) + draw(st.integers(0, 1))
    most = least + draw(st.integers(0, 2))
    schema = {"type": "array", "items": rest.schema, "minItems": least, "maxItems": most}
    if first:
        schema["prefixItems"] = [each.schema for each in first]
    others = st.lists(rest.values, min_size=least - len(first), max_size=most - len(first))
    return Case(schema, st.tuples(st.tuples(*(each.values for each in first)), others).map(lambda t: [*t[0], *t[1]]))


@st.composite
def objects(draw, inner):
    """Objects with properties, of which some are required, and others allowed or not."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    cases = {name: draw(inner) for name in names}
    required = [name for name in names if draw(st.booleans())]
    schema = {"type": "object", "properties": {name: case.schema for name, case in cases.items()}}
    schema |= {"required": required} if required else {}
    others = draw(st.sampled_from([None, False, "typed"]))
    if others is not None:
        schema["additionalProperties"] = False if others is False else {"type": "boolean"}
    extra = {"zz": st.booleans()} if others == "typed" else {}
    known = st.fixed_dictionaries(
        {name: cases[name].values for name in required},
        optional={name: case.values for name, case in cases.items() if name not in required} | extra,
    )
    order = [*names, "zz"]
    return Case(schema, known.map(lambda value: {name: value[name] for name in order if name in value}))


@st.composite
def unions(draw, inner):
    """Any of some schemas."""
    cases = draw(st.lists(inner, min_size=2, max_size=3))
    return Case({"anyOf": [case.schema for case in cases]}, st.one_of([case.values for case in cases]))


@st.composite
def sets(draw):
    """Arrays of different values, in the order of their enum."""
    listed = draw(st.lists(st.sampled_from(["a", "ab", "b", 1, True, None]), min_size=1, max_size=5, unique_by=str))
    least = draw(st.integers(0, len(listed)))
    most = draw(st.integers(least, len(listed)))
    schema = {"type": "array", "items": {"enum": listed}, "uniqueItems": True, "minItems": least, "maxItems": most}
    places = st.sets(st.integers(0, len(listed) - 1), min_size=least, max_size=most)
    return Case(schema, places.map(lambda found: [listed[place] for place in sorted(found)]))


@st.composite
def multiples(draw):
    """Multiples of a decimal within bounds."""
    step = draw(st.sampled_from(["0.01", "0.1", "0.05", "0.001"]))
    low = draw(st.integers(-300, 300))
    high = low + draw(st.integers(1, 300))
    bounds = {"minimum": float(Decimal(low) * Decimal(step)), "maximum": float(Decimal(high) * Decimal(step))}
    inner = st.integers(low, high).map(lambda number: float(Decimal(number) * Decimal(step)) + 0.0)
    return Case({"type": "number", "multipleOf": float(step), **bounds}, inner)


@st.composite
def exclusive(draw, inner):
    """One of some schemas that differ in type, or in a property that tells objects apart."""
    by_type = {"boolean": st.booleans(), "null": st.none(), "integer": st.integers(-9, 9)}
    cases = [
        Case({"type": name}, by_type[name]) for name in draw(st.sets(st.sampled_from(sorted(by_type)), max_size=2))
    ]
    for name in draw(st.lists(st.sampled_from(["cat", "dog", "cow"]), min_size=1, max_size=3, unique=True)):
        other = draw(inner)
        schema = {"type": "object", "properties": {"kind": {"const": name}, "of": other.schema}, "required": ["kind"]}
        of = st.just({}) | other.values.map(lambda value: {"of": value})
        cases.append(Case(schema, of.map(lambda value, name=name: {"kind": name, **value})))
    return Case({"oneOf": [case.schema for case in cases]}, st.one_of([case.values for case in cases]))


@st.composite
def merges(draw, inner):
    """A schema in parts, all of which hold."""
    named = objects(inner).filter(lambda case: not case.schema.get("additionalProperties"))
    case = draw(named | integers() | strings())
    parts = [{}, {}, {"type": case.schema["type"]}]
    for name, value in case.schema.items():
        if name == "properties":
            cut = draw(st.integers(0, len(value)))  # answers have the properties of the first part first
            for part, members in zip(parts, ([*value.items()][:cut], [*value.items()][cut:]), strict=False):
                part.update({name: dict(members)} if members else {})
        elif name != "additionalProperties":
            parts[draw(st.integers(0, 2))][name] = value
    schema = {"allOf": [part for part in parts if part]} | draw(st.sampled_from([{}, parts[2]]))
    return Case(schema, case.values)


@st.composite
def choices_beside_others(draw, inner):
    """Objects with properties of their own beside a choice of others."""
    beside = draw(objects(inner).filter(lambda case: "additionalProperties" not in case.schema))
    options, values = [], []
    for name in draw(st.lists(st.sampled_from(["cat", "dog", "cow"]), min_size=1, max_size=3, unique=True)):
        other = draw(inner)
        options.append({"properties": {"kind": {"const": name}, "of": other.schema}, "required": ["kind"]})
        of = st.just({}) | other.values.map(lambda value: {"of": value})
        values.append(of.map(lambda value, name=name: {"kind": name, **value}))
    choice = {draw(st.sampled_from(["anyOf", "oneOf"])): options}
    schema = draw(st.sampled_from([{**beside.schema, **choice}, {"allOf": [beside.schema, choice]}]))
    return Case(schema, st.builds(lambda own, chosen: {**own, **chosen}, beside.values, st.one_of(values)))


LEAVES = (
    integers()
    | numbers()
    | strings()
    | listed()
    | st.sampled_from([Case({"type": "boolean"}, st.booleans()), Case({"type": "null"}, st.none())])
)


def _combined(inner):
    return (
        arrays(inner) | objects(inner) | unions(inner) | exclusive(inner) | merges(inner) | choices_beside_others(inner)
    )


@st.composite
def cases(draw):
    """Combinations of everything, some of which refer to a definition."""
    case = draw(st.recursive(LEAVES, _combined, max_leaves=6))
    if draw(st.integers(0, 3)):
        return case
    reference = {"$ref": "#/$defs/D"}
    schema = {"$defs": {"D": case.schema}, "type": "array", "items": reference, "maxItems": 2}
    return Case(schema, st.lists(case.values, max_size=2))


REPLACED = st.sampled_from(["", "0", "9", "-", ".", "a", "é", '"', "\\", ",", "null", " ", "}", "]", "{", "e1"])


@st.composite
def neighbours(draw, text):
    """A text that differs from another one in one place."""
    place = draw(st.integers(0, len(text)))
    return text[:place] + draw(REPLACED) + text[place + draw(st.integers(0, 1)) :]


@st.composite
def changed(draw, value):
    """A value that differs from another one in one place, which may be within it."""
    if isinstance(value, dict | list) and value and draw(st.booleans()):
        return draw(_changed_within(value))
    if isinstance(value, dict):
        return value | {draw(st.sampled_from([*NAMES, "zz"])): draw(LISTED)}
    if isinstance(value, list):
        return [*value, draw(LISTED)]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return draw(st.sampled_from([value + 1, value - 1, value + 0.5, -value, value * 1000, str(value)]))
    if isinstance(value, str):
        return draw(st.sampled_from([value + "a", value[1:], value + value, value.upper(), value + "\n", None]))
    return draw(LISTED)


@st.composite
def _changed_within(draw, value):
    """An object or array in which one part is missing or another one."""
    place = draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value))))
    other = {place: draw(changed(value[place]))} if draw(st.booleans()) else {}
    if isinstance(value, dict):
        return {name: other.get(name, each) for name, each in value.items() if name != place or other}
    return [*value[:place], *other.values(), *value[place + 1 :]]
