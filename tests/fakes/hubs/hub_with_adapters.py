"""A Hub of public models, and of LoRA adapters whose files are here."""

from tests.fakes.hub import MemoryHub
from tests.fakes.hubs.public_hub import PublicHub


class HubWithAdapters(PublicHub):
    """`adapters`: files by revision, of each adapter org/<name>; `changes` are those of PublicHub."""

    def __init__(self, changes=None, **adapters):
        super().__init__(**(changes or {}))
        self.adapters = MemoryHub({f"org/{name}": revisions for name, revisions in adapters.items()})

    def _hub(self, repo):
        return self.adapters if repo in self.adapters.models else super()

    def resolve(self, repo, revision):
        return self._hub(repo).resolve(repo, revision)

    def read_file(self, source, path):
        return self._hub(source.repo).read_file(source, path)
