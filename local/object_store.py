"""The stack's S3: moto's server, which keeps objects in memory, and a folder in which they survive `down`."""

import contextlib
import json
import os
import shutil
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
from botocore.config import Config

from local.processes import Background

READY_TIMEOUT_S = 30.0
DESCRIBED = ("Metadata", "ContentType")


class LocalObjectStore:
    """moto's S3 server on a loopback port. It honours If-Match and If-None-Match, which the channel needs."""

    def __init__(self, folder: Path, python: Path, port: int, credentials: dict[str, str]) -> None:
        """`folder` keeps the saved buckets; `credentials` hold AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
        self.endpoint = f"http://127.0.0.1:{port}"
        self._saved = folder / "buckets"
        self._python, self._port, self._credentials = python, port, credentials
        self.process = Background(folder, "server")

    def start(self, bucket: str) -> None:
        """Start the server and restore what was saved; make `bucket`. Nothing when it runs.

        Raises:
            TimeoutError: the server does not answer.
        """
        if self.process.pid() is not None:
            return
        command = [str(self._python), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        environment = {"PATH": os.defpath, "MOTO_S3_CUSTOM_ENDPOINTS": self.endpoint}
        self.process.start(command, environment, self.process.folder.parent)
        self._wait()
        self._restore()
        client = self.client()
        if bucket not in {found["Name"] for found in client.list_buckets()["Buckets"]}:
            client.create_bucket(Bucket=bucket)

    def stop(self) -> None:
        """Save every bucket, then end the server."""
        if self.process.pid() is not None:
            self.save()
        self.process.stop()

    def client(self) -> Any:
        """A boto3 client of this server."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self._credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._credentials["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 2}, s3={"addressing_style": "path"}),
        )

    def save(self) -> None:
        """Write every object to the folder; the older copy goes only once the new one is whole."""
        client, fresh, older = self.client(), self._saved.with_name("buckets.new"), self._saved.with_name("buckets.old")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for bucket in client.list_buckets()["Buckets"]:
            folder = fresh / bucket["Name"]
            folder.mkdir()
            described = {}
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket["Name"]):
                for item in page.get("Contents", []):
                    place = {"Bucket": bucket["Name"], "Key": item["Key"]}
                    client.download_file(**place, Filename=str(folder / quote(item["Key"], safe="")))
                    head = client.head_object(**place)
                    described[item["Key"]] = {field: head[field] for field in DESCRIBED}
            folder.with_suffix(".json").write_text(json.dumps(described))
        if self._saved.exists():
            self._saved.rename(older)
        fresh.rename(self._saved)
        shutil.rmtree(older, ignore_errors=True)

    def _restore(self) -> None:
        client, older = self.client(), self._saved.with_name("buckets.old")
        if older.exists() and not self._saved.exists():
            older.rename(self._saved)  # the last save was cut between its two renames
        for folder in sorted(path for path in self._saved.glob("*") if path.is_dir()):
            client.create_bucket(Bucket=folder.name)
            described = folder.with_suffix(".json")
            for key, fields in json.loads(described.read_text()).items():
                client.upload_file(str(folder / quote(key, safe="")), folder.name, key, ExtraArgs=fields)

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=1):  # noqa: S310
                return
            time.sleep(0.1)
        raise TimeoutError(f"the object store did not answer at {self.endpoint}; its log:\n{self.process.tail()}")
