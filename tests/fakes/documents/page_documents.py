"""A reader of the pages over documents in memory, which are bytes, as in a store."""

from slipway.tasks.contracts.base import canonical_json
from slipway.tasks.pages.reading import Stored, parsed


def stored(document):
    """The bytes of a contract, or of a sequence of contracts."""
    if isinstance(document, bytes):
        return document
    if isinstance(document, list | tuple):
        return canonical_json([each.model_dump(mode="json") for each in document])
    return canonical_json(document.model_dump(mode="json"))


class PageDocuments:
    """Documents by their URIs."""

    def __init__(self, documents):
        self.documents = {uri: stored(document) for uri, document in documents.items()}

    def read(self, wanted):
        """Every document, parsed."""
        return {
            uri: parsed(self.documents[uri], parse) if uri in self.documents else Stored()
            for uri, parse in wanted.items()
        }
