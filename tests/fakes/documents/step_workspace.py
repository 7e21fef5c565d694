"""A workspace on the test's own disk: artifacts are folders, datasets are lists, time stands still."""

import shutil
from datetime import UTC, datetime
from hashlib import sha256
from types import SimpleNamespace

from slipway.tasks.contracts.errors import InputError
from slipway.tasks.contracts.stored.artifact import File, Manifest
from tests.fakes.documents.gpu_site import gpu_site

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class StillClock:
    """Never moves."""

    def now(self):
        return NOW

    def monotonic(self):
        return 0.0

    def sleep(self, seconds):
        pass


class FolderArtifacts:
    """Stored artifacts as folders, with what was said of each."""

    def __init__(self, folder):
        self.folder, self.manifests = folder, {}

    def put(self, stage, key, source):
        """An artifact that an earlier step made."""
        return self.store(stage, key, source, inputs={}, producer={}, metrics={}, seconds=0.0)

    def fetch(self, stage, key, target, *, only=None):
        if (stage, key) not in self.manifests:
            raise InputError(f"there is no artifact {stage} {key}")
        if only is None:
            shutil.copytree(self.folder / stage / key, target, dirs_exist_ok=True)
        else:
            shutil.copy(self.folder / stage / key / only, target)
        return self.manifests[stage, key]

    def store(self, stage, key, source, *, inputs, producer, metrics, seconds):
        shutil.copytree(source, self.folder / stage / key)
        files = tuple(
            File(
                path=file.relative_to(source).as_posix(),
                sha256=sha256(file.read_bytes()).hexdigest(),
                size_bytes=file.stat().st_size,
            )
            for file in sorted(source.rglob("*"))
            if file.is_file()
        )
        manifest = Manifest(
            stage=stage,
            key=key,
            files=files,
            inputs=inputs,
            producer=producer,
            metrics=metrics,
            created_at=NOW,
            seconds=seconds,
        )
        self.manifests[stage, key] = manifest
        return manifest


class StepWorkspace:
    """What the artifact steps use of a Workspace."""

    def __init__(self, folder, *, templates=None, datasets=None, clock=None, free_bytes=2**40):
        """`datasets`: lines by file name."""
        self._folder, self._free_bytes = folder, free_bytes
        self.templates, self.site = templates, gpu_site()
        self.clock = clock or StillClock()
        self.artifacts = FolderArtifacts(folder / "artifacts")
        self.datasets = SimpleNamespace(read=lambda dataset: (datasets or {})[dataset.file.path])

    def require_space(self, size_bytes, what):
        if self._free_bytes < size_bytes:
            raise InputError(f"{what} needs {size_bytes} bytes, {self._free_bytes} are free")

    def folder(self, name):
        made = self._folder / "scratch" / name
        made.mkdir(parents=True)
        return made
