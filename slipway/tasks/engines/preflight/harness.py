"""What plan checks of `gate.harness`: that lm_eval has each task, and that it generates text and runs no programs.

harness_tasks.tsv is read from the lm_eval that images/harness installs, because the image of plan has none.
"""

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.spec.harness import Harness

TABLE = Path(__file__).with_name("harness_tasks.tsv")
LM_EVAL = "0.4.13"
CODE = "!code"


@cache
def tasks_by_dataset() -> Mapping[str, tuple[str, ...]]:
    """Names of tasks that generate text, by the dataset of the Hub that they read; CODE: tasks that run programs."""
    rows = (line.partition("\t") for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {dataset: tuple(names.split()) for dataset, _, names in rows}


def datasets_of(harness: Harness) -> dict[str, str]:
    """The dataset of each of lm_eval's tasks, by task.

    Raises:
        InputError: lm_eval has no such task, or it cannot be run here. Names the reason.
    """
    datasets = {name: dataset for dataset, names in tasks_by_dataset().items() for name in names}
    wanted = [task.task for task in harness.tasks if task.questions is None]
    for name in wanted:
        if datasets.get(name) == CODE:
            raise InputError(
                f"gate.harness names {name}, which runs programs that the model wrote",
                expected="a task that compares texts",
                remedy="Remove it: Slipway runs no such task, because the programs would run in the cluster.",
            )
        if name not in datasets:
            close = difflib.get_close_matches(name, datasets, n=3)
            raise InputError(
                f"gate.harness names {name}, which is not a task of lm_eval {LM_EVAL} that Slipway can run",
                expected="a single task with output_type generate_until whose documents come from a dataset of the Hub"
                + (f", such as {', '.join(close)}" if close else ""),
                remedy="Choose such a task. multiple_choice and loglikelihood tasks (mmlu, hellaswag) need log "
                "probabilities of the prompt, which no engine gives here; of a group, name each task.",
            )
    return {name: datasets[name] for name in wanted}
