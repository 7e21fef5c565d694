"""From a JSON Schema to a grammar in EBNF: numbers and texts as regular languages. Pure, standard library only.

The models of Triton share this folder by a link, so it imports nothing of Slipway.
"""


class GrammarError(ValueError):
    """A language is empty, too large, or not one that can be written; the text says which, as the end of a sentence."""
