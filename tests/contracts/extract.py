"""Facts of an upstream file in the words of its record, and where the two differ. Nothing of the file is executed."""

import ast
import re

from tests.support.yaml_documents import load_yaml


def differences(entry, record, text):
    """Sentences, each of which names what the file says otherwise than the record."""
    return list(READERS[entry["reads"]](entry, record, text))


def argparse(entry, record, text):
    """Flags by their add_argument: each flag of the file's is recorded alike, and none of the record's is gone."""
    known = {name: flag for name, flag in record["flags"].items() if name not in plugin_flags(record)}
    said = {}
    for call in calls(text, "add_argument"):
        names = [
            each.value for each in call.args if isinstance(each, ast.Constant) and str(each.value).startswith("--")
        ]
        for name in names:
            said[name] = {word.arg: literal(word.value) for word in call.keywords}
    for name in known.keys() - said.keys():
        yield f"{name} is recorded, and not in the file"
    for name in known.keys() & said.keys():
        for word in ("default", "choices"):
            theirs, ours = said[name].get(word, UNREAD), known[name].get(word)
            if theirs is not UNREAD and theirs is not None and plain(theirs) != plain(ours):
                yield f"{name}: {word} is recorded as {ours!r}, the file has {theirs!r}"


def plugins(entry, record, text):
    """Each plugin of PluginConfig is a flag of trtllm-build."""
    said = {f"--{name.lstrip('_')}" for name in fields_of(text, ["PluginConfig"])}
    for name in sorted(plugin_flags(record) - said):
        yield f"{name} is recorded, and PluginConfig has no such field"


def fields(entry, record, text):
    """Fields of data classes or pydantic models by name, and their defaults where these are literals."""
    said = fields_of(text, entry["classes"])
    known = record.get("fields") or {name: {} for name in record[entry["classes"][-1]]}
    for name in known.keys() - said.keys():
        yield f"{name} is recorded, and {' and '.join(entry['classes'])} have no such field"
    for name in known.keys() & said.keys():
        theirs = said[name]
        if "default" in known[name] and theirs is not UNREAD and plain(theirs) != plain(known[name]["default"]):
            yield f"{name}: default is recorded as {known[name]['default']!r}, the file has {theirs!r}"


def options(entry, record, text):
    """Options of tritonserver by name."""
    said = {f"--{name}" for name in re.findall(r'\{\s*OPTION_\w+,\s*"([a-z0-9-]+)"', text)}
    for name in record["flags"].keys() - said:
        yield f"{name} is recorded, and not in the file"


def requirements(entry, record, text):
    """The pin of the record's package."""
    found = re.search(rf"^{record['tool']}\s*==\s*(\S+)", text, re.MULTILINE)
    if found is None or found[1] != record["bundled"]:
        yield f"{record['tool']} is recorded as {record['bundled']}, the file has {found and found[1]}"


def imports(entry, record, text):
    """Names that the file imports from the record's package."""
    said = {
        (node.module, each.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == record["tool"]
        for each in node.names
    }
    known = {(module, name) for module, names in record["imports"].items() for name in names}
    for module, name in sorted(said - known):
        yield f"{module}.{name} is imported, and not recorded"


def dockerfile(entry, record, text):
    """Build arguments, and the environment that pip installs in."""
    said = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    for name, value in record["arguments"].items():
        if said.get(name) != value:
            yield f"ARG {name} is recorded as {value}, the file has {said.get(name)}"
    for wanted in (
        f"python{record['python']} -m venv {record['environment']}",
        f'ENV PATH="{record["environment"]}/bin:',
    ):
        if wanted not in text:
            yield f"{wanted} is recorded, and not in the file"


def tensors(entry, record, text):
    """Inputs and outputs of a config.pbtxt by name."""
    said = set(re.findall(r'^\s*name: "(\w+)"', text, re.MULTILINE))
    for each in (*record["input"], *record["output"]):
        if each["name"] not in said:
            yield f"{each['name']} is recorded, and not in the file"
    known = {each["name"] for each in (*record["input"], *record["output"])} | {"tensorrt_llm"}
    for name in sorted(said - known):
        yield f"{name} is in the file, and not recorded"


def placeholders(entry, record, text):
    """Parameters of a template."""
    said = set(re.findall(r"\$\{(\w+)\}", text))
    model = record["models"]["tensorrt_llm"]
    known = {*model["required"], *model["optional"]}
    for name in sorted(known ^ said):
        yield f"{name} is {'recorded, and not in the file' if name in known else 'in the file, and not recorded'}"


def custom_resource(entry, record, text):
    """Every property of the recorded schema is the file's, of the same type and as required."""
    schema = load_yaml(text)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield from compared(record["openAPIV3Schema"], schema, record["openAPIV3Schema"].get("$defs", {}), "")


def nothing(entry, record, text):
    return ()


def compared(ours, theirs, definitions, path):
    """Differences of two JSON schemas, as far as the first one goes; descriptions aside."""
    if "$ref" in ours:
        ours = definitions[ours["$ref"].rpartition("/")[2]]
    for word in ("type", "required", "enum", "pattern", "minimum", "maximum", "default"):
        if word in ours and ours[word] != theirs.get(word):
            yield f"{path or '/'}: {word} is recorded as {ours[word]!r}, the file has {theirs.get(word)!r}"
    for name, each in ours.get("properties", {}).items():
        if name not in theirs.get("properties", {}):
            yield f"{path}/{name} is recorded, and not in the file"
        else:
            yield from compared(each, theirs["properties"][name], definitions, f"{path}/{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(ours.get(word), dict) and isinstance(theirs.get(word), dict):
            yield from compared(ours[word], theirs[word], definitions, f"{path}[]")


UNREAD = object()
"""In place of a value that only running the file would tell."""


def plugin_flags(record):
    names = [name for name, flag in record["flags"].items() if "disable" in (flag.get("choices") or ())]
    return {*names, "--tokens_per_block"} & record["flags"].keys()


def fields_of(text, classes):
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found[each.target.id] = default_of(each.value)
    return found


def default_of(value):
    if isinstance(value, ast.Call):
        given = next((word.value for word in value.keywords if word.arg == "default"), None)
        return literal(given) if given is not None else UNREAD
    return literal(value) if value is not None else UNREAD


def calls(text, method):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield node


def literal(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return UNREAD


def plain(value):
    return sorted(map(str, value)) if isinstance(value, list | tuple | set) else str(value)


READERS = {
    each.__name__: each
    for each in (
        *(argparse, plugins, fields, options, requirements, imports, dockerfile, tensors, placeholders),
        *(custom_resource, nothing),
    )
}
