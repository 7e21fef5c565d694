"""Runs the tiers of tests, each in the environment whose code it tests, and ends with one line of counts.

    python3 -m tests                       every tier
    python3 -m tests unit -- -k keys       one tier, with arguments for pytest

The whole chain mostly waits for Airflow and pods, so two parts run side by side, the longest first: the chain, which is
shown as it goes, and all others, which are shown at the end.
pytest comes from the dev environment, laid behind the environment's own packages: what is tested is exactly what the
image holds. Standard library only.
"""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

REPOSITORY = Path(__file__).resolve().parent.parent
ENVIRONMENTS = REPOSITORY / ".slipway" / "envs"
TIERS = {"unit": "tasks", "contracts": "tasks", "dags": "airflow", "cluster": "local", "local": "tasks"}
OF_PACKAGES = {"cluster": "local/cluster/tests"}
"""Tiers that lie beside the package they test."""
CHAIN = "local/chain"
LONGEST_FIRST = ("local", "cluster", "dags", "contracts", "unit")
COUNTED = {"passed": 0, "failed": 0, "skipped": 0}
NO_TESTS = 5  # pytest's exit code when a selection matched nothing
LAID_OVER = (
    "import sys; sys.path.append(sys.argv.pop(1)); sys.path.insert(0, sys.argv.pop(1)); "
    "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)


def main(arguments: list[str]) -> int:
    """Run the tiers named before `--`; exit 1 if a test failed or a tier could not run."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    tiers, options = arguments[:cut] or list(TIERS), arguments[cut + 1 :]
    if unknown := [tier for tier in tiers if tier not in TIERS]:
        print(f"tests: no tier {', '.join(unknown)}; there are {', '.join(TIERS)}", file=sys.stderr)
        return 2
    began = time.monotonic()
    # with arguments a tier is one run, for they may name the tests
    parts = [part for tier in tiers for part in ([CHAIN, tier] if tier == "local" and not options else [tier])]
    ordered = sorted(parts, key=lambda part: LONGEST_FIRST.index(part.partition("/")[0])) if CHAIN in parts else parts
    with ThreadPoolExecutor(2 if CHAIN in parts else 1) as lanes:
        running = {
            part: lanes.submit(run, part, options, shown=part == CHAIN or CHAIN not in parts) for part in ordered
        }
        try:
            found = {part: running[part].result() for part in parts}
        finally:
            lanes.shutdown(cancel_futures=True)  # an interrupt ends what runs, and what waits does not begin
    totals = {name: sum(counts[name] for _, counts in found.values()) for name in COUNTED}
    broken = [part for part, (code, _) in found.items() if code not in ((0, NO_TESTS) if options else (0,))]
    print(f"tests: {_words(totals)} in {time.monotonic() - began:.0f} s ({', '.join(tiers)})", flush=True)
    return 1 if broken else 0


def run(part: str, options: list[str], *, shown: bool) -> tuple[int, dict[str, int]]:
    """Run a tier or the chain of it, shown as it goes or whole when it is done; its exit code and counts.

    Toolkits are compiled once: importing them otherwise takes 16 s, not 6.
    """
    python = ENVIRONMENTS / TIERS[part.partition("/")[0]] / "bin" / "python"
    overlay = next((ENVIRONMENTS / "dev" / "lib").glob("python3.*")) / "site-packages"
    report = REPOSITORY / ".slipway" / f"tests-{part.replace('/', '-')}.xml"
    command = [str(python), "-c", LAID_OVER, str(overlay), str(REPOSITORY)]
    command += [OF_PACKAGES.get(part, f"tests/{part}"), f"--junitxml={report}", "-q", *options]
    if part == "local" and not options:
        command.append(f"--ignore=tests/{CHAIN}")
    if not shown:
        command = ["nice", "-n", "5", *command]  # the chain, beside which it runs, measures times
    report.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept = None if shown else subprocess.PIPE
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=kept, stderr=subprocess.STDOUT, check=False)
    counts = _counts(report)
    print(f"{(done.stdout or b'').decode()}tests: {part}: {_words(counts)}", flush=True)
    return done.returncode, counts


def _counts(report: Path) -> dict[str, int]:
    if not report.exists():
        return COUNTED | {"failed": 1}
    suites = ET.parse(report).getroot().iter("testsuite")
    found = COUNTED.copy()
    for suite in suites:
        number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
        found["failed"] += number["failures"] + number["errors"]
        found["skipped"] += number["skipped"]
        found["passed"] += number["tests"] - number["failures"] - number["errors"] - number["skipped"]
    return found


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
