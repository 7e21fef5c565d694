"""The recorded flags of tritonserver are those that the real one prints."""

import os
import re
import subprocess

import yaml

from tests.local.serving.triton_server import LAUNCHER
from tests.support.paths import REPOSITORY


def test_the_server_has_every_flag_that_is_recorded():
    recorded = yaml.safe_load((REPOSITORY / "tests" / "contracts" / "tritonserver.yaml").read_text())["flags"]
    printed = subprocess.run(
        [LAUNCHER, "--help"], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False
    )

    has = set(re.findall(r"--[a-z-]+", printed.stdout + printed.stderr))

    assert {name for name, flag in recorded.items() if not flag.get("newer")} <= has
