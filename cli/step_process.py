"""A step as a process of this machine, in the environment of a checkout's steps: for commands that need no Airflow."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tasks.contracts.errors import InputError, PipelineError, UnavailableError

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / ".slipway" / "envs" / "tasks" / "bin" / "python"
ERRORS = {kind.exit_code: kind for kind in (InputError, UnavailableError)}


def run_step(arguments: Sequence[str], site_file: Path | None, *, instead: str) -> str:
    """Run `python -m tasks` to its end; what it says last.

    Args:
        arguments: the step and its own arguments.
        site_file: the site.
        instead: what a person without a checkout can do, as a sentence.

    Raises:
        InputError: there is no such environment here, or the step refused its input.
        UnavailableError, PipelineError: as the step ended.
    """
    if not PYTHON.exists():
        raise InputError(
            "the environment of the steps is not here",
            expected=str(PYTHON),
            remedy=f"Run `python3 -m local.environments tasks` in a checkout and use its ./slipway. {instead}",
        )
    with tempfile.TemporaryDirectory(prefix="slipway-step-") as folder:
        said = Path(folder, "said")
        ended = subprocess.run(
            [PYTHON, "-m", "tasks", *arguments, "--site", str(site_file)],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SLIPWAY_TERMINATION_LOG": str(said)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        text = (said.read_text(encoding="utf-8") if said.exists() else ended.stdout).strip()
    if ended.returncode:
        raise ERRORS.get(ended.returncode, PipelineError)(text)
    return text
