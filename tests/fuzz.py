"""Sends many requests of strangers to the real front and the real engine: `python3 -m tests.fuzz --requests 20000`.

The short form is a test of the local tier; this is the same test with other numbers. A seed that found something is
printed, and repeats it: `--seed N`.
"""

import argparse
import os
import secrets
import sys

from tests.__main__ import run

TEST = "tests/local/serving/test_requests_of_strangers.py"


def main() -> int:
    """Run the test; its exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="another one each time")
    parsed = parser.parse_args()
    os.environ |= {"SLIPWAY_FUZZ_REQUESTS": str(parsed.requests), "SLIPWAY_FUZZ_SEED": str(parsed.seed)}
    code, _ = run("local", ["-s", "-k", "test_whatever_a_stranger_sends", TEST], shown=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
