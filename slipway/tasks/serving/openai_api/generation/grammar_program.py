"""Translates schemas to grammars in a process of its own, within the limits of slipway/tasks/adapters/worker.py.

python -m slipway.tasks.serving.openai_api.generation.grammar_program DESCRIPTOR MEMORY_BYTES
"""

import sys

from slipway.tasks.adapters.worker import serve
from slipway.tasks.contracts.wire.json_schema import SchemaError, grammar_of

GRAMMAR, REFUSAL = "grammar", "refusal"


def work(schema: str) -> dict[str, str]:
    """The grammar of a schema, or why it has none: a verdict that never changes, either way."""
    try:
        return {GRAMMAR: grammar_of(schema)}
    except SchemaError as error:
        return {REFUSAL: str(error)}


def main(descriptor: str, memory_bytes: str) -> int:
    """Translate until the other end closes."""
    return serve(int(descriptor), int(memory_bytes), lambda: work)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
