"""A Hub whose repositories are dictionaries: revision to file name to bytes."""

import hashlib
import json

from slipway.tasks.contracts.errors import DigestMismatchError, InputError
from slipway.tasks.contracts.stored.plan import DatasetFile, HubFile, Source


class MemoryHub:
    """See tasks.adapters.hub.hub.Hub."""

    def __init__(self, models=None, datasets=None):
        """`datasets`: lines by `hf://` URI."""
        self.models, self.datasets = models or {}, datasets or {}
        self.brought: list[str] = []
        self.damaged: set[str] = set()
        """Files whose bytes are not what is announced."""

    def resolve(self, repo, revision):
        files = self.models.get(repo, {}).get(revision)
        if files is None:
            raise InputError(f"model {repo} has no revision {revision!r}")
        announced = tuple(_announced(name, data) for name, data in sorted(files.items()))
        return Source(repo=repo, revision=revision, commit=_sha1(repr(sorted(files.items())).encode()), files=announced)

    def pin_dataset(self, uri):
        if uri not in self.datasets:
            raise InputError(f"{uri}: no such file")
        repo, _, rest = uri.removeprefix("hf://datasets/").partition("@")
        data = json.dumps(self.datasets[uri]).encode()
        return DatasetFile(repo=repo, commit="d" * 40, file=_announced(rest.partition("/")[2], data))

    def commit_of_dataset(self, repo):
        if repo not in {uri.removeprefix("hf://datasets/").partition("@")[0] for uri in self.datasets}:
            raise InputError(f"dataset {repo} does not exist")
        return "d" * 40

    def read_file(self, source, path):
        return self.models[source.repo][source.revision][path]

    def bring(self, source, file, take, count):
        def check():
            if file.path in self.damaged:
                raise DigestMismatchError(
                    file.path, expected=file.digest, found="sha256:" + "0" * 64, remedy="Try again."
                )

        self.brought.append(file.path)
        taken = take(MemoryFile(self.models[source.repo][source.revision][file.path], file, check))
        count(file.size_bytes)
        return taken

    def read_dataset(self, dataset):
        return next(lines for uri, lines in self.datasets.items() if uri.endswith(dataset.file.path))


class MemoryFile:
    """See tasks.adapters.store.object_store.ByteSource."""

    reads_at_once = 4

    def __init__(self, data, file, check=lambda: None):
        """`check` raises if the bytes shall count as wrong."""
        self.data, self.size_bytes, self.check = data, len(data), check
        self.sha256 = file.digest.removeprefix("sha256:") if file.digest.startswith("sha256:") else None
        self.digested = b""

    def read_into(self, offset, view):
        view[:] = self.data[offset : offset + len(view)]

    def digest(self, view):
        self.digested += bytes(view)

    def verified(self):
        self.check()
        assert self.digested == self.data
        return hashlib.sha256(self.digested).hexdigest()


def _announced(name, data):
    if name.endswith(".safetensors"):
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    else:
        digest = f"git-sha1:{_sha1(b'blob %d' % len(data) + bytes(1) + data)}"
    return HubFile(path=name, digest=digest, size_bytes=len(data))


def _sha1(data):
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
