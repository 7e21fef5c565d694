"""What a model or a Hub's author writes is text in every page, for a parser of HTML and for a browser."""

import http.server
import shutil
import subprocess
import threading

import pytest

from slipway.tasks.pages.texts import shown
from tests.support.strange_pages import PAGES, Structure
from tests.support.strange_texts import texts
from tests.support.waiting import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
RAN = "this text was run"
CODE = f"document.title=`{RAN}`"
HOSTILE = texts(CODE, "http://stranger.example/x")


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_adds_no_element_and_no_attribute(page, text):
    found, plain = Structure(page(text)), Structure(page("plain"))

    assert found.elements == plain.elements
    assert sum(found.text.count(each) for each in {text, text.replace("\x00", "\ufffd"), shown(text)}) >= 2


@pytest.fixture
def stranger():
    """A server that a page must not ask, and what was asked for."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/x", asked
        server.shutdown()


def opened(page, folder):
    """The page after a browser has run what it would run of it."""
    file = folder / "page.html"
    file.write_text(page)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=2000", "--dump-dom", file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize(
    "page",
    [*PAGES, lambda text: f"<!doctype html><title>x</title><p>{text}"],
    ids=[*(page.__name__ for page in PAGES), "unescaped"],
)
def test_a_browser_runs_nothing_and_asks_for_nothing(page, stranger, tmp_path):
    address, asked = stranger
    shown = opened(page("\n".join(texts(CODE, address))), tmp_path)
    did_something = f"<title>{RAN}" in shown or bool(asked)

    assert did_something == (page not in PAGES), asked
