"""Exit codes of commands, for CI; those of errors are in slipway/tasks/contracts/errors.py."""

from slipway.tasks.contracts.errors import InputError

DONE = 0
REFUSED = 1
"""A release was not promoted, or prompts of a batch have no answer."""
WRONG_INPUT = InputError.exit_code
TIMED_OUT = 124
INTERRUPTED = 130
