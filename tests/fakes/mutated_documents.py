"""Release specs with mistakes: bytes, structure and values changed at random, the same for the same dice."""

import copy

import yaml

VALUES = [
    None, True, 0, 1, -1, 3, 2**31, 2**53, 10**30, 0.5, -0.0, 1e308, 1e-300, float("inf"), float("nan"), "", " ", "$(HOME)",
    "$$", "a b", "\x00", "\x1b[2J", "é", "'", '"', "x" * 300, "x" * 5000, "9" * 5000, "@daily", "@once", "@never",
    "0 0 30 2 *", "* * * * *", "*/0 * * * *", "R R * * *", "h h * * *", "0 0 29 2 1#5", "(a+)+$", "(?=a)", "[", "hf_abcdefghijklmnop",
    "NVIDIA-L4", "llmapi", "vllm", "trt-engine", "fp8", "canary", "human", "regex", [], {}, [[]], [1], {"a": 1}, {"": ""},
]  # fmt: skip
SNIPPETS = [
    b"\xff", b"\xc3", b"\x00", b"\xef\xbb\xbf", b"\t", b"\n", b"\r", b"---\n", b"...\n", b"&a ", b"*a ", b"<<: ", b"!!binary ",
    b"!!python/object:os.system ", b"[" * 3000, b"{" * 3000, b"- " * 3000, b"? ", b": ", b"|\n", b">\n", b"'", b'"', b"#", b"%YAML 9.9\n",
    b"2026-02-30", b"9" * 5000, b".inf", b".nan", b"1e400", b"0x", b"1:60", b"~", b'"\\ud800"', b"{{ x }}", b"\xe2\x80\xa8", b"gate: {}\n",
]  # fmt: skip


def mutants(documents, count, rng):
    """`count` mutated files' bytes, made of the data of `documents`."""
    for number in range(count):
        document = copy.deepcopy(rng.choice(documents)) | {"name": f"model-{number}"}
        if rng.random() < 0.5:
            data = _text(_with_other_values(document, rng))
        else:
            data = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False).encode()
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                data = _with_other_bytes(data, rng)
        yield data


def _text(document):
    text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=False)
    return text.encode()


def _places(value, found):
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            _places(value[key], found)
    return found


def _with_other_values(document, rng):
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if not (places := _places(document, [])):
            break
        parent, key = rng.choice(places)
        change = rng.randrange(5)
        if change == 0:
            del parent[key]
        elif change == 1 and isinstance(parent, dict):
            parent[rng.choice([*parent, "extra", "hf_abcdefghijklmnop", "1", "x" * 300])] = parent.pop(key)
        elif change == 2 and isinstance(parent[key], int | float):
            parent[key] = parent[key] * rng.choice([0, -1, 2, 1000, 10**9, 10**18])
        else:
            parent[key] = copy.deepcopy(rng.choice(VALUES))
    return document


def _with_other_bytes(data, rng):
    at = rng.randrange(len(data) + 1)
    upto = min(len(data), at + rng.choice([0, 0, 1, 2, 20]))
    change = rng.randrange(4)
    if change == 0:
        return data[:at] + data[upto:]
    if change == 1:
        return data[:at] + bytes([rng.randrange(256)]) + data[upto:]
    if change == 2:
        line = rng.choice(data.splitlines(keepends=True) or [b""])
        return data[:at] + line + data[upto:]
    return data[:at] + rng.choice(SNIPPETS) + data[upto:]
