"""Writes docs/clients.md: what current clients send to a release, and what it answers.

    PYTHONPATH=.slipway/envs/dev/lib/python3.11/site-packages .slipway/envs/tasks/bin/python \\
        -m tests.local.serving.openai_routes.transcripts http://ADDRESS:8000 demo-llama

The clients are those of test_other_clients.py, in their own environments: `python3 -m local.environments clients` and
`npm ci --prefix tests/local/serving/openai_routes/ai`.
"""

import datetime as dt
import importlib.metadata
import json
import sys
import tempfile
import textwrap
from pathlib import Path

from tests.local.serving.openai_routes.exchanges import Recorder
from tests.local.serving.openai_routes.test_other_clients import CLIENTS, OF_NODE, QUESTION, aiperf, run
from tests.support import plain_http
from tests.support.paths import REPOSITORY
from tests.unit.openai_api.test_guidellm import BODIES, RESPONSES

PAGE = REPOSITORY / "docs" / "clients.md"
HEAD = """# Clients

What current clients send to a release of the demo's model, whole and streamed, and what it answers. Messages, tools and other
objects are cut to their role, type or name; `(whole, 12 events)` is one answer that was the same whole and in a stream of 12 events. The
model was taught a few questions; what it says after a tool's result has no meaning.

A command wrote this page on {date} (tests/local/serving/openai_routes/transcripts.py). The same clients are tests, in
test_other_clients.py beside it.
"""
ALWAYS = {"model", "stream", "stream_options"}
"""Parameters that the page leaves out."""
WIDTH = 128
"""Characters of a line."""
GUIDELLM = "guidellm 0.8.1, its bodies"
PYTHON = ("openai", "langchain", "instructor", "agents", "litellm", "anthropic", "pydantic_ai")
PACKAGES = {"langchain": "langchain-openai", "agents": "openai-agents", "pydantic_ai": "pydantic-ai-slim"}


def main(url, model):
    sections = [HEAD.format(date=dt.datetime.now(tz=dt.UTC).date())]
    for title, ask in clients(model).items():
        with Recorder(url) as recorder, tempfile.TemporaryDirectory() as folder:
            ask(recorder.url, Path(folder))
        sections.append(section(title, recorder.exchanges))
    PAGE.write_text("\n".join(sections))


def clients(model):
    """What runs each client against an address, by its name and version."""
    found = {}
    for name in PYTHON:
        command = [CLIENTS / "python", Path(__file__).with_name(f"{name}_client.py")]
        found[titled(PACKAGES.get(name, name))] = lambda url, folder, command=command: run(
            [*command, url, model, QUESTION], folder
        )
    of_node = json.loads((OF_NODE / "package.json").read_text())["dependencies"]
    found[", ".join(f"{name} {version}" for name, version in of_node.items() if name != "zod")] = lambda url, folder: (
        run(["node", OF_NODE / "client.mjs", url, model, QUESTION], folder)
    )
    found[GUIDELLM] = lambda url, _: guidellm(url, model)
    found[titled("aiperf")] = lambda url, folder: [
        run(aiperf(url, model, folder / str(streaming), streaming=streaming), folder) for streaming in (False, True)
    ]
    return found


def titled(package):
    packages = next((CLIENTS.parent / "lib").glob("python*/site-packages"))
    (found,) = importlib.metadata.distributions(name=package, path=[str(packages)])
    return f"{package} {found.version}"


def guidellm(url, model):
    """The bodies that it builds without a wish for the length of answers, which only some engine kinds obey."""
    plain_http.get(f"{url}/v1/models")
    for path, body in {**BODIES, "/v1/responses": RESPONSES}.items():
        asked = {name: value for name, value in body.items() if name != "ignore_eos"}
        plain_http.post(f"{url}{path}", json={**asked, "model": model}, timeout=60)


def section(title, exchanges):
    """The exchanges of one client; of requests that look the same, the first that came whole and the first streamed."""
    firsts = {}
    for each in exchanges:
        request = f"{each.method} {each.path} {outlines(each.document or {})}".rstrip()
        firsts.setdefault(request, {}).setdefault((each.status, bool(each.events)), each)
    lines = [f"## {title}", "", "```"]
    for request, answers in firsts.items():
        lines += wrapped(request, "")
        for (status, text), forms in alike(answers.values()).items():
            lines += wrapped(f"{status} {text} ({', '.join(sorted(forms, reverse=True))})", "  ")
    return "\n".join([*lines, "```", ""])


def alike(exchanges):
    """How answers with the same status and text came."""
    forms = {}
    for each in exchanges:
        form = f"{len(each.events)} events" if each.events else "whole"
        forms.setdefault((each.status, " ".join(each.said.split())), []).append(form)
    return forms


def outlines(document):
    """The parameters of an object, without their texts."""
    return ", ".join(f"{name}: {outline(value)}" for name, value in sorted(document.items()) if name not in ALWAYS)


def outline(value):
    """A JSON value in which each object is its role, type or name, where it has one."""
    if isinstance(value, list):
        return f"[{', '.join(map(outline, value))}]"
    if isinstance(value, dict):
        return next((value[name] for name in ("role", "type", "name") if name in value), f"{{{outlines(value)}}}")
    return "..." if isinstance(value, str) and " " in value else json.dumps(value)


def wrapped(text, indent):
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}    ", break_on_hyphens=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
