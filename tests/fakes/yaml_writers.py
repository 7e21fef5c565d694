"""YAML of the same data as different people write it: keys in any order, block or flow, quoted or not, with comments."""

import json
import random
import re

PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
"""Texts that need no quotes."""
WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
COMMENTS = ("# tuned by hand", "# a: b", "#- [x, 'y", '# {"quoted": "', "# é ✓")


def written(data, seed):
    """A document as text that has the data of `data`, the same text for each seed."""
    rng = random.Random(seed)  # noqa: S311
    lines = ["---"] if rng.random() < 0.5 else []
    lines += _block(rng, data, rng.choice([1, 2, 4]))
    return "".join(f"{line}\n" for line in _commented(rng, lines))


def _block(rng, data, width):
    """Lines of a mapping or a list with something in it, without indentation of their own."""
    lines = []
    if isinstance(data, dict):
        for key in rng.sample(list(data), len(data)):
            lines += _under(rng, f"{_text(rng, key)}:", data[key], width, "\n")
    else:
        for item in data:
            lines += _under(rng, "-", item, width, " ")
    return lines


def _under(rng, head, value, width, joint):
    """Lines of a value after its key or its dash."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.25:
        return [f"{head} {_flow(rng, value)}"]
    inner = _block(rng, value, width)
    if joint == " ":  # the first line of an item stands beside its dash
        return [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]
    return [head, *(f"{' ' * width}{line}" for line in inner)]


def _flow(rng, value):
    space = rng.choice(["", " "])
    if isinstance(value, dict):
        items = [f"{_text(rng, key)}: {_flow(rng, value[key])}" for key in rng.sample(list(value), len(value))]
        return f"{{{space}{', '.join(items)}{space}}}"
    if isinstance(value, list):
        return f"[{space}{', '.join(_flow(rng, item) for item in value)}{space}]"
    if isinstance(value, str):
        return _text(rng, value)
    return json.dumps(value)


def _text(rng, text):
    styles = [json.dumps(text, ensure_ascii=rng.random() < 0.5)]
    if text.isprintable():
        styles.append("'" + text.replace("'", "''") + "'")
    if PLAIN.fullmatch(text) and text.lower() not in WORDS:
        styles.append(text)
    return rng.choice(styles)


def _commented(rng, lines):
    """The lines with comments and empty lines between them, and comments after them."""
    for line in lines:
        above = rng.randrange(10)
        if above == 0:
            yield ""
        elif above == 1:
            yield " " * rng.randrange(7) + rng.choice(COMMENTS)
        after = rng.choice([*COMMENTS, *[""] * 10])
        yield f"{line}  {after}".rstrip()
