"""Recorded contracts, and whether a command line or a document stays within one."""

from pathlib import Path

import jsonschema

from tests.support.yaml_documents import load_yaml

FOLDER = Path(__file__).parent


def contract(name):
    return load_yaml((FOLDER / name).read_text())


def check_command(words, recorded):
    """Flags and values of `words` are among those recorded; each stands once unless it is repeatable.

    A value follows its flag, as the next word or after `=`. A list takes words up to the next flag.
    """
    flags, seen, rest = recorded["flags"], set(), list(words)
    while rest:
        name, joined, value = rest.pop(0).partition("=")
        assert name in flags, f"{recorded['tool']} ({recorded['version']}) has no {name}"
        flag = flags[name]
        assert not flag.get("deprecated"), f"{name} is deprecated"
        assert name not in seen or flag.get("repeatable"), f"{name} stands twice"
        seen.add(name)
        if flag["type"] == "switch":
            assert not joined, f"{name} takes no value"
            continue
        if flag["type"] == "list":
            assert rest, f"{name} takes values"
            while rest and not rest[0].startswith("--"):
                rest.pop(0)
            continue
        check_value(name, value if joined else rest.pop(0), flag)


def check_value(name, value, allowed):
    match allowed["type"]:
        case "int":
            int(value)
        case "float":
            float(value)
        case "bool":
            assert value in {"true", "false"}, f"{name} is {value!r}"
        case "path":
            assert str(value).startswith("/"), f"{name} is {value!r}, and who knows the working folder"
        case _:
            pass
    choices = allowed.get("choices")
    assert choices is None or value in choices, f"{name} is {value!r}, none of {choices}"


TYPES = {"int": int, "float": (int, float), "bool": bool, "str": str, "object": dict, "list": list}


def check_document(document, recorded):
    """Fields of a document, and of the objects in it, are among those recorded, with values of their types."""
    for name, value in document.items():
        assert name in recorded["fields"], f"{recorded.get('tool', 'object')} has no field {name}"
        field = recorded["fields"][name]
        assert not field.get("deprecated"), f"{name} is deprecated"
        if value is None and field.get("nullable"):
            continue
        assert isinstance(value, TYPES[field["type"]]), f"{name} is {value!r}, expected {field['type']}"
        assert field["type"] in {"bool", "object"} or not isinstance(value, bool), f"{name} is a truth value"
        assert value in field.get("choices", [value]), f"{name} is {value!r}"
        if "fields" in field:
            check_document(value, field)


def check_object(item, schema):
    """An object of a custom resource follows its recorded schema and has no field beyond it, as with strict validation."""
    jsonschema.Draft202012Validator(_closed(schema)).validate(item)


def _closed(schema):
    """Without room for fields that `properties` does not name; an object without properties stays open."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {}
    for word, value in schema.items():
        named = word in {"properties", "$defs"}
        closed[word] = {name: _closed(each) for name, each in value.items()} if named else _closed(value)
    if "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed


WRITTEN = contract("written_paths.yaml")


def check_writable(program, container, pod, *, besides=()):
    """The container may write where the program was recorded to write, into emptyDirs with a limit, and nowhere else.

    `besides`: recorded folders that this container does without.
    """
    limits = {volume["name"]: (volume.get("emptyDir") or {}).get("sizeLimit") for volume in pod["volumes"]}
    writable = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    recorded = set(WRITTEN["programs"][program]) - set(besides)
    refused = recorded - set(writable) - set(WRITTEN["every_container_has"]) - set(WRITTEN["not_needed"])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True, program
    assert not refused, f"{program} writes to {refused}, which its container does not mount"
    assert set(writable) <= recorded, f"{program} does not write to {set(writable) - recorded}"
    assert all(limits[name] for name in writable.values()), f"{program}: a volume of {writable} has no size limit"
