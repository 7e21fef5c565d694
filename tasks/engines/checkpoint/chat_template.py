"""Renders a checkpoint's chat template once, in a process of its own: a template is a program that a stranger wrote.

Jinja's sandbox, in which transformers renders, keeps a template away from files and processes. It does not stop long
loops: two nested loops over `range(99999)` run for hours. A deadline and a memory limit do.

    python -m tasks.engines.checkpoint.chat_template FOLDER
"""

import resource
import subprocess
import sys
from pathlib import Path

from tasks.contracts.errors import InputError

DEADLINE_S = 600.0  # importing transformers takes seconds, minutes on an overloaded node; rendering takes milliseconds
MEMORY_BYTES = 8 * 2**30  # address space; torch maps some of it without using it
QUESTION = [{"role": "user", "content": "1"}]
QUOTED_CHARS = 160


def check_renders(folder: Path, *, deadline_s: float = DEADLINE_S) -> None:
    """Refuse a tokenizer whose chat template does not render a user's message within the deadline.

    Raises:
        InputError: it fails, or does not finish.
    """
    command = [sys.executable, "-m", "tasks.engines.checkpoint.chat_template", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)  # noqa: S603 - this module
    except subprocess.TimeoutExpired as error:
        raise InputError(
            f"the chat template did not render one message within {deadline_s:.0f} s, and a server would hang as well",
            remedy="Choose another revision, or correct the template.",
        ) from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise InputError(
            "the chat template does not render one user message",
            found=lines[-1][:QUOTED_CHARS],
            remedy="Choose another revision, or correct the template.",
        )


def main(folder: str) -> None:
    """Render the template of the tokenizer in `folder`; raises what the template raises."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)


if __name__ == "__main__":
    main(sys.argv[1])
