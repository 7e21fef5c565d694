"""`make gpu-check`: what this machine can run of Slipway's GPU paths, run. See tests/gpu/README.md."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.gpu.checks import CHECKS, Bench, line_of
from tests.gpu.report import as_json, as_markdown, exit_code
from tests.support.paths import REPOSITORY

REPORTS = REPOSITORY / ".slipway" / "gpu-check"
QUERY = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]


def main():
    """Run the checks; print a line for each as it ends, then where the reports are."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder of report.md and report.json")
    parser.add_argument("--folder", type=Path, help="where checkpoints lie; those of an earlier run are used again")
    parser.add_argument("--only", default="", help="run only checks whose name contains this, and what they build on")
    arguments = parser.parse_args()
    gpu = graphics_here()
    lines = []
    with tempfile.TemporaryDirectory(prefix="slipway-gpu-check-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(folder.resolve(), gpu)
        for name, check in CHECKS.items():
            if arguments.only in name or name in ("torch sees the GPU", "source", "source generates"):
                lines.append(line_of(name, check, bench))
                print(lines[-1], flush=True)
        _keep_logs(bench.folder, arguments.out)
    host = {"gpu": gpu, "commit": _commit()}
    (arguments.out / "report.md").write_text(as_markdown(lines, host))
    (arguments.out / "report.json").write_text(as_json(lines, host))
    code = exit_code(lines, gpu=bench.device == "cuda")
    counts = ", ".join(
        f"{sum(line.status == each for line in lines)} {each}" for each in ("passed", "failed", "skipped")
    )
    print(f"gpu-check: {counts}; {arguments.out}/report.md for docs/verified.md; exit code {code}")
    return code


def graphics_here():
    """GPUs as nvidia-smi lists them; None without one."""
    if shutil.which(QUERY[0]) is None:
        return None
    done = subprocess.run(QUERY, capture_output=True, text=True, timeout=60, check=False)
    listed = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return "; ".join(listed) if done.returncode == 0 and listed else None


def _keep_logs(folder, out):
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, out)


def _commit():
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
