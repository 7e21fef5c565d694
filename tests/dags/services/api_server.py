"""Airflow's API server over the tier's own database, and what a judge asks of a page that it shows."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import NamedTuple

from tests.dags.places import store_connection
from tests.dags.services.people import ROLES, RightsPerModel
from tests.support.paths import REPOSITORY
from tests.support.ports import free_ports
from tests.support.service_logs import LogFiles, tell
from tests.support.waiting import PATIENCE_S, answers, until

PASSWORD = "of-everybody"
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


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    headers: dict[str, str]
    text: str


@dataclass(frozen=True)
class ApiServer:
    """The server that runs, and its users."""

    address: str

    def token(self, user):
        """The token of a user who has logged in."""
        body = json.dumps({"username": user, "password": PASSWORD}).encode()
        request = urllib.request.Request(f"{self.address}/auth/token", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)["access_token"]

    def get(self, path, user=None, *, token=None, form=None):
        """The answer to a user, to whoever holds a token, or to nobody; to a form, if there is one."""
        token = self.token(user) if user else token
        body = urllib.parse.urlencode(form).encode() if form is not None else None
        request = urllib.request.Request(
            self.address + path, body, headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        try:
            answer = urllib.request.urlopen(request, timeout=PATIENCE_S)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return Answer(answer.status, dict(answer.headers), answer.read().decode())

    def log_in(self, shown, user):
        """Give a browser's page the cookie that a login leaves."""
        shown.set_cookie("_token", self.token(user), self.address)


def shows(text):
    """A script: whether the page shows the text."""
    return f"document.body?.innerText.includes({text!r})"


@contextlib.contextmanager
def api_server(folder, s3_endpoint, **variables):
    """Start it, with its log, its users' passwords in `folder` and these variables, and stop it at the end."""
    (port,) = free_ports(1)
    address, passwords, log = f"http://127.0.0.1:{port}", folder / "passwords.json", folder / "api-server.log"
    passwords.write_text(json.dumps(dict.fromkeys(ROLES, PASSWORD)))
    settings = {
        "API__BASE_URL": address,
        "API__PORT": str(port),
        "API_AUTH__JWT_SECRET": "0123456789abcdef" * 4,
        "CORE__AUTH_MANAGER": f"{RightsPerModel.__module__}.{RightsPerModel.__qualname__}",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in ROLES.items()),
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
    }
    environment = os.environ | {f"AIRFLOW__{name}": value for name, value in settings.items()}
    environment |= {"AIRFLOW_CONN_AWS_DEFAULT": store_connection(s3_endpoint), **variables}
    command = [sys.executable, "-m", "local.airflow.program", "api-server", "--apps", "core", "--host", "127.0.0.1"]
    tell(LogFiles(log))
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: answers(f"{address}/api/v2/version"))
        yield ApiServer(address)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
