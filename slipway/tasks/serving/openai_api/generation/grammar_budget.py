"""The budget of schema translations, in a module of its own because the steps that render pods import it."""

from slipway.tasks.adapters.worker import Budget

TRANSLATORS = 2
"""Half of them may do long work at a time, so that a short schema never waits for a long one."""
BUDGET = Budget(cpu_s=2.0, seconds=30.0, memory_bytes=64 << 20)
"""The longest schema that is within all limits takes about a second of a CPU and 20 MiB."""
