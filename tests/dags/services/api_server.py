"""Airflow's API server over the tier's own database, and what a judge asks of a page that it shows."""

import contextlib
import os
import subprocess
import sys
import urllib.request

from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S, until

HOSTILE = """
(() => {
  const told = (text) => /stranger/.test(text);
  const addresses = ["src", "srcset", "href", "xlink:href", "action", "formaction", "data", "poster", "srcdoc", "style"];
  const found = [];
  for (const element of document.querySelectorAll("*")) {
    for (const {name, value} of element.attributes) {
      const link = element.tagName === "A" && name === "href" && /^https?:/.test(value);
      if (told(value) && !link && (name.startsWith("on") || addresses.includes(name))) found.push(element.outerHTML);
    }
    if (/^(script|style|iframe|object|embed|base|meta|link|form|title)$/i.test(element.tagName)) {
      if (told(element.textContent)) found.push(element.outerHTML);
    }
  }
  return found;
})()
"""
"""Elements that run or fetch a stranger's text; a link that waits for a click is none."""


def shows(text):
    """A script: whether the page shows the text."""
    return f"document.body?.innerText.includes({text!r})"


@contextlib.contextmanager
def api_server(log):
    """Its address. Whoever asks the login for a token is an administrator."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    settings = {"CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True", "API__BASE_URL": address, "API__PORT": str(port)}
    environment = os.environ | {f"AIRFLOW__{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "local.airflow.program", "api-server", "--apps", "core", "--host", "127.0.0.1"]
    tell(LogFiles(log))
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: answers(f"{address}/api/v2/version"))
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def answers(url):
    """Whether somebody answers there."""
    try:
        urllib.request.urlopen(url, timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True
