"""The pages of the documentation site: each field of spec and site, each command and each alert is in its reference."""

import importlib.util
import re

import pytest

from slipway.cli.__main__ import COMMANDS
from slipway.tasks.contracts.site.site import Site
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from tests.support.paths import REPOSITORY

SCRIPT = importlib.util.spec_from_file_location("build_pages", REPOSITORY / "docs" / "build_pages.py")
build_pages = importlib.util.module_from_spec(SCRIPT)
SCRIPT.loader.exec_module(build_pages)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    build_pages.main(folder)
    return folder


def fields(schema):
    """Names of the fields of a document and of everything in it."""
    objects = [schema, *schema.get("$defs", {}).values()]
    return {name for each in objects for name in each.get("properties", ())}


@pytest.mark.parametrize(("contract", "page"), [(ReleaseSpec, "spec"), (Site, "site")])
def test_every_field_has_a_row(pages, contract, page):
    text = (pages / "reference" / f"{page}.md").read_text()

    assert [name for name in fields(contract.model_json_schema()) if f"| `{name}` |" not in text] == []


def test_every_command_has_a_section(pages):
    text = (pages / "reference" / "command.md").read_text()

    assert [name for name in COMMANDS if f"## slipway {name}\n" not in text] == []


def test_every_page_is_in_the_navigation(pages):
    text = (REPOSITORY / "mkdocs.yml").read_text()
    names = [str(path.relative_to(pages)) for path in pages.rglob("*.md") if path.parent.name != "decisions"]

    assert [name for name in names if f": {name}\n" not in text] == []


def test_no_page_has_a_word_that_a_browser_takes_for_a_tag(pages):
    found = {f"{path.relative_to(pages)}: {line}" for path in pages.rglob("*.md") for line in tags(path.read_text())}

    assert found == set()


def tags(text):
    """Tags outside code. Python-Markdown, which makes the site, wants code in an item of a list indented by 8."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1", "", text, flags=re.MULTILINE | re.DOTALL)
    lines, in_list, code = [], False, False
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if line and indent < 4:
            in_list = bool(re.match(r" *(\d+\.|[-*]) ", line)) or (in_list and indent > 0)
        code = indent >= (8 if in_list else 4) and (code or not lines or not lines[-1])
        if not line or not code:
            lines.append(line)
    # code between backticks may go on in the next line
    return re.findall(r"</?[A-Za-z][^>\n]*>", re.sub(r"(`+)[^`].*?\1", "", "\n".join(lines), flags=re.DOTALL))


@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("[costs](day-two.md#costs)", "[costs](day-two.md#costs)"),
        ("[a spec](../specs/demo.yaml)", f"[a spec]({build_pages.SOURCE}/specs/demo.yaml)"),
        ("see docs/runbook.md for more", "see [runbook](runbook.md) for more"),
        ("    cat docs/runbook.md", "    cat docs/runbook.md"),
        ("[x](https://example.com)", "[x](https://example.com)"),
    ],
)
def test_links_lead_to_pages_or_to_the_repository(text, links):
    pages = {f"docs/{name}.md": f"{name}.md" for name in ("day-two", "runbook", "page")}

    assert build_pages.with_links(text, "docs/page.md", pages) == f"{links}\n"
