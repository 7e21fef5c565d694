"""The names of the steps."""

from typing import Literal, get_args

Step = Literal[
    "plan",
    "download",
    "quantize",
    "build",
    "assemble",
    "publish",
    "check-network",
    "roll-out",
    "smoke-test",
    "benchmark",
    "evaluate",
    "gate",
    "promote",
    "roll-back",
    "revert",
    "drill",
    "fetch-adapters",
    "sign-adapters",
    "load-adapters",
    "retention",
]
OTHER_STEPS = frozenset({"revert", "drill", "fetch-adapters", "sign-adapters", "load-adapters", "retention"})
"""Steps that belong to no release's run: `revert` restores a previous release, `drill` tries that out, the next
three change the adapters of the live release, `retention` deletes old ones."""
STEPS: tuple[Step, ...] = tuple(step for step in get_args(Step) if step not in OTHER_STEPS)
"""The steps of a release, in order."""
