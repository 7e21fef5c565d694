"""A step as a process of this machine, in the environment of a checkout's steps: for commands that need no Airflow."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from slipway.tasks.contracts.errors import InputError, PipelineError, UnavailableError

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = REPOSITORY / ".slipway" / "envs" / "tasks" / "bin" / "python"
ERRORS = {kind.exit_code: kind for kind in (InputError, UnavailableError)}


def run_step(
    arguments: Sequence[str], site_file: Path, *, instead: str, meanwhile: Callable[[], object] = lambda: None
) -> str:
    """Run `python -m slipway.tasks` to its end; what it says last.

    Args:
        arguments: the step and its own arguments.
        site_file: the site.
        instead: what a person without a checkout can do, as a sentence.
        meanwhile: called while the step works.

    Raises:
        InputError: there is no such environment here, or the step refused its input.
        UnavailableError, PipelineError: as the step ended.
    """
    if not PYTHON.exists():
        raise InputError(
            "the environment of the steps is not here",
            expected=str(PYTHON),
            remedy=f"Run `python3 -m local.environments tasks` in a checkout and use its bin/slipway. {instead}",
        )
    with tempfile.TemporaryDirectory(prefix="slipway-step-") as folder:
        said = Path(folder, "said")
        with subprocess.Popen(
            [PYTHON, "-m", "slipway.tasks", *arguments, "--site", str(site_file)],
            env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SLIPWAY_TERMINATION_LOG": str(said)},
            stdout=subprocess.PIPE,
            text=True,
        ) as step:
            meanwhile()
            printed, _ = step.communicate()
        text = (said.read_text(encoding="utf-8") if said.exists() else printed).strip()
    if step.returncode:
        raise ERRORS.get(step.returncode, PipelineError)(text)
    return text
