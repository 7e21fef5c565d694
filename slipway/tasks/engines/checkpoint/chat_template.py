"""Renders a checkpoint's chat template as the servers will: a template is a program that a stranger wrote.

Code and limits are those of the servers (model_repository_templates/shared/generation/model_files/chat_template.py),
which render in a process of its own. What reads the checkpoint's documents for it is limited as well.

    python -m slipway.tasks.engines.checkpoint.chat_template FOLDER QUESTIONS
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from slipway.tasks.engines.checkpoint.apart import limited, run_apart

if TYPE_CHECKING:
    from slipway.tasks.contracts.spec.spec import ReleaseSpec  # the process that renders needs no contracts

SERVING_CODE = Path(__file__).resolve().parents[4] / "model_repository_templates" / "shared"
CPU_S = 20  # of each process; the servers' limit for rendering is far below
MEMORY_BYTES = 512 * 2**20  # address space of each process; without a template it has 60 MiB
REMEDY = "Choose another revision, or correct the template. GPU kinds take engine.options.chat_template: none."


def check_renders(folder: Path, spec: "ReleaseSpec") -> None:
    """Refuse a checkpoint whose chat template does not render the questions of gate.smoke within the limits.

    Args:
        folder: the tokenizer's documents.
        spec: the release, whose arguments the template gets.

    Raises:
        InputError: it fails, or does not finish.
    """
    with TemporaryDirectory() as given:
        questions = Path(given, "questions.json")
        questions.write_text(json.dumps(_questions(spec)), encoding="utf-8")
        run_apart(
            "slipway.tasks.engines.checkpoint.chat_template",
            [str(folder), str(questions)],
            what=f"the chat template of {spec.source.model} does not render the questions of gate.smoke",
            remedy=REMEDY,
        )


def _questions(spec: "ReleaseSpec") -> dict[str, Any]:
    """The arguments of every question, and each question with its own, as JSON."""
    asked = [
        {
            "messages": [
                *(turn.model_dump(mode="json") for turn in question.history),
                {"role": "user", "content": question.prompt},
            ],
            "arguments": dict(question.chat_template_kwargs),
        }
        for question in spec.gate.smoke
    ]
    return {"arguments": dict(spec.engine.chat_template_kwargs), "questions": asked}


def main(folder: Path, questions: Path) -> None:
    """Render `questions` by the template of the tokenizer in `folder`."""
    sys.path.insert(0, str(SERVING_CODE))
    serving: Any = import_module("generation.model_files.chat_template")
    asked = json.loads(questions.read_bytes())
    template = serving.read_chat_template(folder, asked["arguments"])
    if template is None:
        raise LookupError("no chat template named default")
    for question in asked["questions"]:
        template.render(question["messages"], question["arguments"])


if __name__ == "__main__":
    with limited(cpu_s=CPU_S, memory_bytes=MEMORY_BYTES):
        main(*map(Path, sys.argv[1:]))
