"""Makes a package whose import takes seconds wait until it is used.

jsonschema imports rfc3987_syntax, which builds 38 parsers in 3 CPU seconds, and kubernetes imports jsonschema wherever it
finds kubernetes_validate: in every process of the tests, and in no image.
"""

import functools
import importlib
import sys
from types import ModuleType

PARSERS = "rfc3987_syntax"


def import_parsers_at_first_use():
    """Let the checkers of the formats `iri` and `iri-reference` import their parsers."""
    if PARSERS not in sys.modules:
        module = ModuleType(PARSERS)
        module.is_valid_syntax = lambda term, value: _parsers().is_valid_syntax(term, value)
        sys.modules[PARSERS] = module


@functools.cache
def _parsers():
    del sys.modules[PARSERS]
    return importlib.import_module(PARSERS)
