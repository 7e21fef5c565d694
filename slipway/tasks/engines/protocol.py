"""What every engine kind can do: a planner, which plan uses, and a maker, which runs in the pods of later steps."""

from pathlib import Path
from typing import Any, Protocol

from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.contracts.stored.artifact import Stage
from slipway.tasks.contracts.stored.plan import Estimate, Source
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.preflight.hub_metadata import Documents


class EnginePlanner(Protocol):
    """Judges a release by names, sizes and small documents. It imports no toolkit."""

    def check(self, release: ResolvedRelease, source: Source, documents: Documents) -> None:
        """Refuse what cannot work before any pod starts.

        Args:
            release: the spec on the site.
            source: the files that will be downloaded.
            documents: those of EngineTraits.reads_at_plan that the source has, and each adapter's adapter_config.json
                by its path in the download artifact.

        Raises:
            InputError: this kind cannot make or serve what the spec asks for.
        """

    def warnings(self, release: ResolvedRelease, source: Source, documents: Documents) -> tuple[str, ...]:  # noqa: ARG002
        """What may surprise a person about a release that check does not refuse. Arguments are those of check."""
        return ()

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Bytes to download, and the scratch and memory of the most demanding step."""

    def producers(self, release: ResolvedRelease) -> dict[Stage, dict[str, str]]:
        """Versions of everything that shapes a stage's output; they are part of its key."""


class EngineMaker(Protocol):
    """Turns a Hugging Face checkpoint into something that Triton serves. It imports its toolkit inside the methods."""

    def quantize(self, checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Texts) -> dict[str, Any]:
        """Write the model in the spec's format to `out`, which exists and is empty.

        Args:
            checkpoint: folder in Hugging Face layout; it is only read.
            spec: the release's spec.
            out: owned by the caller.
            texts: texts to calibrate and measure on; each kind reads what it needs.

        Returns:
            Metrics, among them `perplexity` and `source_perplexity` where they were measured; None where not finite.

        Raises:
            InputError: the checkpoint is damaged, or its architecture is unknown to this kind.
        """

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Write the engine to `out`, which exists and is empty: everything that serving reads, and `engine.json`.

        Args:
            checkpoint: what quantize wrote; it is only read.
            spec: the release's spec.
            out: owned by the caller.

        Returns:
            Contents of `engine.json`: versions, limits and precision as read back from the engine.

        Raises:
            InputError: the engine does not load, or is not what the spec asks for.
        """

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values for `model_repository_templates/<kind>/`, from the `engine.json` that build wrote to `engine_dir`."""
