"""The object store as the stack starts it and asks it."""

import os
from pathlib import Path
from typing import Any

from local.supervisor import Service


class LocalObjectStore:
    """`python -m local.object_store` on a loopback port. It honours If-Match and If-None-Match, which channels need."""

    def __init__(self, folder: Path, python: Path, port: int, credentials: dict[str, str]) -> None:
        """`folder` stores the objects; `credentials` are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
        self.endpoint = f"http://127.0.0.1:{port}"
        self._folder, self._python, self._port, self._credentials = folder, python, port, credentials

    def service(self, repository: Path) -> Service:
        """The server, for the supervisor."""
        site = repository / "sites" / "local.yaml"
        command = (str(self._python), "-m", "local.object_store", "--folder", str(self._folder), "--site", str(site))
        return Service(
            name="object-store",
            command=(*command, "--port", str(self._port)),
            # credentials are not in the command line, which everybody on the machine can read
            environment={"PATH": os.defpath, **self._credentials},
            working_directory=repository,
        )

    def client(self) -> Any:
        """A boto3 client of this server."""
        # imported here: it takes a second, and looking up the stack's addresses does not need it
        import boto3  # noqa: PLC0415
        from botocore.config import Config  # noqa: PLC0415

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self._credentials["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self._credentials["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 2}, s3={"addressing_style": "path"}),
        )
