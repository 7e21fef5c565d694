"""The processes of a model that do for a request what its client, or a model's author, could make last.

They render chat templates, which are somebody else's code, and translate JSON Schemas (request_program.py).
"""

import atexit
from pathlib import Path

from generation.workers.worker import Budget, Workers

BUDGET = Budget(cpu_s=2.0, seconds=30.0, memory_bytes=64 << 20)
"""Rendering takes milliseconds, and the longest schema within its limits about a second of a CPU; the time is for a
machine that does other things as well. The memory is enough for 6 MiB of messages, whatever their characters are."""
COUNT = 4
"""There are as many as a model has threads for requests (generation/service.py). The front leaves them room
(slipway/tasks/serving/rendered/front_routes.py)."""
PREPARERS = Workers([str(Path(__file__).with_name("request_program.py"))], BUDGET, count=COUNT)
atexit.register(PREPARERS.close)
