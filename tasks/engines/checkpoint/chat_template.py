"""Renders a checkpoint's chat template once, as the servers will: a template is a program that a stranger wrote.

Code and limits are those of the servers (model_repository_templates/shared/generation/chat_template.py), which render
in a process of its own. What reads the checkpoint's documents for it is limited as well.

    python -m tasks.engines.checkpoint.chat_template FOLDER
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tasks.engines.checkpoint.apart import limited, run_apart

SERVING_CODE = Path(__file__).resolve().parents[3] / "model_repository_templates" / "shared"
CPU_S = 20  # of each process; the servers' limit for rendering is far below
MEMORY_BYTES = 512 * 2**20  # address space of each process; without a template it has 60 MiB
REMEDY = "Choose another revision, or correct the template."


def check_renders(folder: Path) -> None:
    """Refuse a checkpoint whose chat template does not render a user's message within the limits.

    Raises:
        InputError: it fails, or does not finish.
    """
    what = "the chat template does not render one user message"
    run_apart("tasks.engines.checkpoint.chat_template", [str(folder)], what=what, remedy=REMEDY)


def main(folder: Path) -> None:
    """Render the template of the tokenizer in `folder`, as its reader does before it takes one."""
    sys.path.insert(0, str(SERVING_CODE))
    serving: Any = import_module("generation.chat_template")
    if serving.read_chat_template(folder) is None:
        raise LookupError("no chat template named default")


if __name__ == "__main__":
    with limited(cpu_s=CPU_S, memory_bytes=MEMORY_BYTES):
        main(Path(sys.argv[1]))
