"""Stands in for `python -m slipway.tasks` in a step's pod: writes its result where the step would, and does no work.

Only the standard library, so that it starts as fast as Python does. The plan comes from a file that the benchmark
wrote.
"""

import datetime as dt
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import sys
import time
import urllib.parse

PLAN = "BENCH_PLAN"
"""Environment variable: the file with the result of plan."""
IDLE = "idle"
"""A step that writes nothing."""


def main(step: str, arguments: dict[str, str]) -> None:
    """Write the result of `step`; `arguments` are those of the real command, by their names."""
    if step == IDLE:
        return
    began, started_at = time.monotonic(), dt.datetime.now(dt.UTC)
    if step == "plan":
        *_, name, run, _file = arguments["request"].split("/")
        result = json.loads(pathlib.Path(os.environ[PLAN]).read_text())
        result["data"]["plan"]["run"] = run
        uri = arguments["request"].split("/requests/")[0] + f"/releases/{name}/plans/{run}.json"
    else:
        uri = arguments["release"].removesuffix("release.json") + f"results/{step}.json"
        run, data = arguments["run"], {"verdict": "passed"} if step == "gate" else {}
        result = {"step": step, "release": arguments["release"], "outcome": "done", "summary": step, "data": data}
    seconds = time.monotonic() - began
    put(uri, json.dumps(result | {"run": run, "started_at": started_at.isoformat(), "seconds": seconds}).encode())


def put(uri: str, body: bytes) -> None:
    """Store an object, with the signature that S3 requires (AWS Signature Version 4)."""
    site = pathlib.Path(os.environ["SLIPWAY_SITE"]).read_text()
    found = re.search(r"^object_store:.*?endpoint: https?://([^\s/]+)", site, re.DOTALL | re.MULTILINE)
    assert found, "the site file names no endpoint"
    host, path = found[1], urllib.parse.quote("/" + uri.removeprefix("s3://"))
    now, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = hashlib.sha256(f"PUT\n{path}\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    key = f"AWS4{os.environ['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}"):
        key = hmac.digest(key, part.encode(), "sha256")
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    signature = f"Credential={credential}, SignedHeaders={names}, Signature={key.hex()}"
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("PUT", path, body, headers | {"authorization": f"AWS4-HMAC-SHA256 {signature}"})
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        sys.exit(f"{uri}: {answer.status} {answer.read()[:500]!r}")


if __name__ == "__main__":
    _, its_step, *pairs = sys.argv
    main(its_step, {name.removeprefix("--"): value for name, value in zip(pairs[::2], pairs[1::2], strict=True)})
