"""Writes the pages of the documentation site: those of docs/, the README, and a reference of what the code says.

    python docs/build_pages.py FOLDER

The reference comes from the schemas of spec and site, from the command's own help, and from alerts and metrics, so that
it says what this version does. Links that leave the site lead to the repository. `make docs` builds the site of it.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from slipway.cli.__main__ import COMMANDS, PROGRAM, app  # noqa: E402 - the checkout's own
from slipway.tasks.contracts.site.site import Site  # noqa: E402
from slipway.tasks.contracts.spec.spec import ReleaseSpec  # noqa: E402

SOURCE = f"https://github.com/{os.environ.get('GITHUB_REPOSITORY', 'OWNER/slipway')}/blob/main"
"""Links that leave the site lead here. GitHub sets the variable in a workflow."""
DOCS, PICTURES = REPOSITORY / "docs", "pictures"
ROOT_PAGES = {"README.md": "index.md", "SECURITY.md": "SECURITY.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
ROOT_PAGES |= {"CHANGELOG.md": "CHANGELOG.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
MENTION = re.compile(r"(?<![\w/\[(`.-])docs/((?:[\w-]+/)*[\w-]+)\.md(?![\w/])(?!\])")
FENCE = re.compile(r"^(?: {4}|```|~~~)")
LIMITS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "{} characters or more",
    "maxLength": "{} characters at most",
    "minItems": "{} or more",
    "maxItems": "{} at most",
    "maxProperties": "{} at most",
    "pattern": "`{}`",
}


def main(folder: Path) -> None:
    """Write every page below `folder`."""
    sources = ROOT_PAGES | {f"docs/{path}": str(path) for path in sorted(_pages_of_docs())}
    pages = sources | {f"docs/{PICTURES}/{path.name}": f"{PICTURES}/{path.name}" for path in DOCS.glob(f"{PICTURES}/*")}
    shutil.copytree(DOCS / PICTURES, folder / PICTURES, dirs_exist_ok=True)
    written = {
        **{target: with_links((REPOSITORY / source).read_text(), source, pages) for source, target in sources.items()},
        "reference/spec.md": schema_page("Release spec", ReleaseSpec.model_json_schema(), "specs/demo.yaml"),
        "reference/site.md": schema_page("Site file", Site.model_json_schema(), "sites/local.yaml"),
        "reference/command.md": command_page(),
        "reference/metrics.md": metrics_page(),
    }
    for target, text in written.items():
        page = folder / target
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)


def _pages_of_docs() -> Iterator[Path]:
    for path in DOCS.rglob("*.md"):
        if path.parent.name != "changelog":
            yield path.relative_to(DOCS)


def with_links(text: str, source: str, pages: dict[str, str]) -> str:
    """The text of a page whose links lead to pages of the site, or else to the repository; mentions become links."""
    here = Path(source).parent

    def leads_to(path: str) -> str:
        target = (REPOSITORY / here / path).resolve().relative_to(REPOSITORY)
        if str(target) not in pages:
            return f"{SOURCE}/{target}"
        up = "../" * (len(Path(pages[source]).parts) - 1)
        return up + pages[str(target)]

    def link(found: re.Match[str]) -> str:
        return leads_to(found[1]) + (found[2] or "")

    def mention(found: re.Match[str]) -> str:
        path = f"docs/{found[1]}.md"
        if path not in pages:
            return found[0]
        up = "../" * (len(Path(pages[source]).parts) - 1)
        return f"[{found[1]}]({up}{pages[path]})"

    lines, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        code = fenced or FENCE.match(line)
        lines.append(line if code else MENTION.sub(mention, LINK.sub(link, line)))
    return "\n".join(lines) + "\n"


def schema_page(title: str, schema: dict[str, Any], example: str) -> str:
    """Every field of a document, with type, default, limits and meaning, and a complete example."""
    definitions = schema.get("$defs", {})
    objects = {title: schema} | {name: each for name, each in sorted(definitions.items()) if "properties" in each}
    sections = [f"# {title}", "Generated from the schema that `slipway validate` checks."]
    for name, each in objects.items():
        sections += [f"## {name}"] if name != title else []
        sections += [_text(each.get("description", ""))]
        required = set(each.get("required", ()))
        rows = [_row(field, value, definitions, field in required) for field, value in each["properties"].items()]
        sections.append("\n".join(["| field | type and limits | default | meaning |", "|---|---|---|---|", *rows]))
    return "\n\n".join([*sections, "## Example", f"```yaml\n{(REPOSITORY / example).read_text()}```"]) + "\n"


def _row(name: str, field: dict[str, Any], definitions: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{field['default']!r}`" if "default" in field else "none"
    return f"| `{name}` | {_type(field, definitions)} | {_cell(default)} | {_cell(field.get('description', ''))} |"


def _type(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    """The type of a field in words, with its limits; another object as a link to its section."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[1]
        target = definitions[name]
        return f"[{name}](#{name.lower()})" if "properties" in target else _type(target, definitions)
    if choices := field.get("anyOf") or field.get("oneOf") or field.get("allOf"):
        return " or ".join(dict.fromkeys(_type(each, definitions) for each in choices))
    if values := field.get("enum") or ([field["const"]] if "const" in field else []):
        return _cell(", ".join(f"`{value}`" for value in values))
    kind = str(field.get("type", "any"))
    words = {"null": "nothing", "object": "map", "integer": "whole number"}.get(kind, kind)
    if kind == "array" and isinstance(field.get("items"), dict):
        words = f"list of {_type(field['items'], definitions)}"
    if isinstance(field.get("additionalProperties"), dict):
        words = f"map of {_type(field['additionalProperties'], definitions)}"
    limits = [text.format(field[key]) for key, text in LIMITS.items() if key in field]
    return _cell(", ".join([words, *limits]))


def _cell(text: str) -> str:
    """A text that is one cell of a table."""
    return _escaped(" ".join(text.split())).replace("|", "\\|").replace("\\\\|", "\\|")


def _text(text: str) -> str:
    """A docstring as paragraphs."""
    return "\n\n".join(_escaped(" ".join(part.split())) for part in text.split("\n\n"))


def _escaped(text: str) -> str:
    """A text in which `<name>` outside backticks is no tag."""
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in re.split(r"(`[^`]*`)", text))


def command_page() -> str:
    """The help of the command and of each of its subcommands."""
    group = typer.main.get_command(app)
    with group.make_context(PROGRAM, ["validate"], resilient_parsing=True) as context:
        sections = ["# The command", "Generated from the command's own help.", *_help(group, PROGRAM)]
        for name in COMMANDS:
            command = group.get_command(context, name)
            sections += [f"## {PROGRAM} {name}", *_help(command, f"{PROGRAM} {name}")]
    return "\n\n".join(sections) + "\n"


def _help(command: Any, path: str) -> Iterator[str]:
    """What a command does, how it is called, and its arguments and options."""
    yield _text(command.help or "")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    usage = [
        path,
        "[OPTIONS]",
        *(
            each.make_metavar_text() if hasattr(each, "make_metavar_text") else each.human_readable_name
            for each in arguments
        ),
    ]
    yield f"    {' '.join(usage)}"
    rows = [
        f"| `{', '.join(each.opts)}` | {_cell(each.help or '')} |" for each in command.params if each.name != "help"
    ]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    if commands := getattr(command, "commands", None):
        for name, each in commands.items():
            yield f"### {path} {name}"
            yield from _help(each, f"{path} {name}")


def metrics_page() -> str:
    """Every alert with what it means, and the metrics that rules and dashboards read, by what exports them."""
    rules = yaml.safe_load((REPOSITORY / "k8s_manifests/monitoring/prometheusrule-slipway-alerts.yaml").read_text())
    alerts = [rule for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    sections = ["# Alerts and metrics", "Generated from the manifests in k8s_manifests/monitoring.", "## Alerts"]
    for rule in alerts:
        notes = rule["annotations"]
        runbook = f"../{notes['runbook_url'].partition('docs/')[2]}"
        sections += [f"### {rule['alert']}", _text(notes["description"]), f"[What to do]({runbook})"]
        sections.append(f"```promql\n{rule['expr'].strip()}\n```")
    sections.append("## Metrics")
    for exporter, each in yaml.safe_load((REPOSITORY / "tests/contracts/metrics.yaml").read_text()).items():
        names = "\n".join(f"- `{name}`" for name in each["names"])
        sections += [f"### Of {exporter}", f"Read in {_text(each['source'])}.", names]
    return "\n\n".join(sections) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
