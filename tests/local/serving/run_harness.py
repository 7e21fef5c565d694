"""Runs one task of lm_eval in the environment harness: `python -m tests.local.serving.run_harness BASE API QUESTIONS`.

Prints what was measured as JSON. The tests' own environment has no lm_eval.
"""

import json
import logging
import os
import sys
from pathlib import Path

from slipway.tasks.adapters.clock import SystemClock
from slipway.tasks.adapters.judge.lm_eval_harness import HarnessEndpoint, HarnessRequest, LmEval


def main(base, api, questions):
    logging.basicConfig(level=logging.INFO)
    runner = LmEval(Path(os.environ["HOME"]) / "harness", SystemClock(), hub=None)
    request = HarnessRequest("demo-questions", Path(questions), max_tokens=32)
    measured = runner.run(request, HarnessEndpoint(base, "demo", api, concurrency=4))
    scores = {name: score.model_dump() for name, score in measured.scores.items()}
    log = [json.loads(line) for line in measured.log.splitlines()]
    print(
        json.dumps(
            {
                "lm_eval": runner.version,
                "torch": "torch" in sys.modules,
                "samples": measured.samples,
                "scores": scores,
                "task_hash": measured.task_hash,
                "log": log,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
