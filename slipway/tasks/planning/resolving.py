"""The first move, resolve: what a spec means at its site and at the Hub. No other move asks the Hub anything."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.engine import Lora
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.plan import DRAFT_FOLDER, Datasets, Source, lora_folder
from slipway.tasks.engines.checkpoint.files import CONFIG
from slipway.tasks.engines.preflight.harness import datasets_of
from slipway.tasks.engines.preflight.hub_metadata import Documents
from slipway.tasks.engines.preflight.loras import ADAPTER_CONFIG
from slipway.tasks.engines.preflight.sources import by_index, documents_of, files_of_adapter, files_of_release
from slipway.tasks.engines.preflight.speculation import DRAFT_SIZES
from slipway.tasks.engines.protocol import EnginePlanner
from slipway.tasks.engines.registry import planner_for

if TYPE_CHECKING:  # the client is loaded when a step connects to the Hub
    from slipway.tasks.adapters.hub.hub import Hub


MODEL, DRAFT = "", f"{DRAFT_FOLDER}/"
"""Folders of the model and of its draft model in the download artifact."""


@dataclass(frozen=True)
class Repository:
    """A repository of the Hub that a release takes files of."""

    folder: str
    """Its folder in the download artifact."""
    repo: str
    revision: str
    chosen: Callable[[Source], Source]
    """The source with only the files that the release takes."""
    documents: tuple[str, ...]
    """Those of its files that plan reads."""


@dataclass(frozen=True)
class Resolution:
    """A release on its site, with the files, documents and datasets that its names stand for at the Hub."""

    release: ResolvedRelease
    engine: EnginePlanner
    source: Source
    adapters: dict[str, Source]
    draft: Source | None
    documents: Documents
    """Those that the engine kind reads at plan, by path; an adapter's and the draft model's under their folders."""
    datasets: Datasets

    @property
    def spec(self) -> ReleaseSpec:
        """The release's spec."""
        return self.release.spec

    @property
    def companion_bytes(self) -> int:
        """Bytes of the adapters and of the draft model."""
        companions = [*self.adapters.values(), *([self.draft] if self.draft else [])]
        return sum(source.size_bytes for source in companions)


def resolve(release: ResolvedRelease, hub: "Hub") -> Resolution:
    """Look up at the Hub what the release's spec names.

    Raises:
        InputError: a model, an adapter or a dataset, or the access to it, is missing; or its files are no model's.
        UnavailableError: the Hub does not answer.
    """
    spec = release.spec
    repositories = _repositories(spec)
    sources = {each.folder: each.chosen(hub.resolve(each.repo, each.revision)) for each in repositories}
    documents: dict[str, Any] = {
        f"{each.folder}{path}": document
        for each in repositories
        for path, document in documents_of(sources[each.folder], each.documents, hub).items()
    }
    source, draft = by_index(sources[MODEL], documents), sources.get(DRAFT)
    if draft:
        documents[DRAFT_SIZES] = {file.path: file.size_bytes for file in draft.files}
    adapters = {lora.name: sources[f"{lora_folder(lora.name)}/"] for lora in _loras(spec)}
    return Resolution(release, planner_for(spec.engine.kind), source, adapters, draft, documents, _pinned(spec, hub))


def _repositories(spec: ReleaseSpec) -> list[Repository]:
    model, draft = spec.source, spec.engine.draft
    repositories = [
        Repository(MODEL, model.model, model.revision, files_of_release, spec.engine.traits.reads_at_plan),
        *(
            Repository(f"{lora_folder(each.name)}/", each.repo, each.revision, files_of_adapter, (ADAPTER_CONFIG,))
            for each in _loras(spec)
        ),
    ]
    if draft:
        repositories.append(Repository(DRAFT, draft.repo, draft.revision, files_of_release, (CONFIG,)))
    return repositories


def _loras(spec: ReleaseSpec) -> list[Lora]:
    return sorted(spec.engine.lora, key=lambda lora: lora.name)


def _pinned(spec: ReleaseSpec, hub: "Hub") -> Datasets:
    quality, calibration, prompts = spec.gate.quality, spec.quantization.calibration, spec.gate.benchmark.prompts
    uris = {
        "calibration": calibration.dataset if calibration else None,
        "quality": quality.dataset if quality else None,
        "perplexity": quality.perplexity if quality else None,
        "load_prompts": prompts.dataset if prompts else None,
    }
    harness = spec.gate.harness
    questions = {task.task: task.questions for task in harness.tasks if task.questions} if harness else {}
    commits = datasets_of(harness) if harness else {}
    return Datasets(
        **{name: hub.pin_dataset(uri) for name, uri in uris.items() if uri},
        harness_questions={name: hub.pin_dataset(uri) for name, uri in questions.items()},
        harness_commits={name: hub.commit_of_dataset(repo) for name, repo in commits.items()},
    )
