"""Services that are told of releases: MLflow's own server, and aiosmtpd, which keeps mail in a Maildir."""

import email
import json
import mailbox
from email import policy
from typing import ClassVar

import httpx

from tests.airflows.served import Served
from tests.support.waiting import PATIENCE_S

FROM = "slipway@example.org"


def _parsed(file):
    return email.message_from_binary_file(file, policy=policy.default)


class Mail(Served):
    """aiosmtpd, which keeps what arrives in a Maildir."""

    def _words(self):
        handler = "aiosmtpd.handlers.Mailbox"
        return "aiosmtpd", "-n", "-l", f"127.0.0.1:{self._port}", "-c", handler, self._folder / "mail"

    def mails(self):
        """What has arrived, by subject."""
        mails = mailbox.Maildir(self._folder / "mail", factory=_parsed)
        return {mail["subject"]: mail for mail in mails}

    @property
    def connection(self):
        """An Airflow connection to it."""
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": FROM}
        return json.dumps({"conn_type": "smtp", "host": "127.0.0.1", "port": self._port, "extra": extra})


class Mlflow(Served):
    """MLflow's tracking server and registry."""

    _variables: ClassVar = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # takes minutes of a busy machine to start

    @property
    def address(self):
        return f"http://127.0.0.1:{self._port}"

    def _words(self):
        store = f"sqlite:///{self._folder}/mlflow.db"
        return "mlflow", "server", "--port", self._port, "--workers", 1, "--backend-store-uri", store

    def aliased(self, model, alias):
        """The version of a registered model that has the alias; None if there is none."""
        url, query = f"{self.address}/api/2.0/mlflow/registered-models/alias", {"name": model, "alias": alias}
        answer = httpx.get(url, params=query, timeout=PATIENCE_S)
        return answer.json()["model_version"] if answer.is_success else None

    @property
    def connection(self):
        """An Airflow connection to it."""
        return json.dumps({"conn_type": "http", "host": self.address})
