"""What every engine kind can do. Implementations import their toolkit inside the methods."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from tasks.contracts.artifact import Stage
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents

ENGINE_FOLDER = "engine"
"""Where engine files lie inside a version of a Triton model, as in `<model>/1/engine`."""

ENGINE_DESCRIPTION = "engine.json"
"""What build read back from the engine it made. Templates are filled from it, so that nobody is asked twice."""


REPOSITORY_ROOT = "/models/repository"
"""Where the init container of a serving pod lays the Triton repository: backends of TensorRT-LLM and vLLM take absolute
paths only (triton-inference-server/tensorrtllm_backend#181)."""


class Engine(Protocol):
    """One toolkit that turns a Hugging Face checkpoint into something Triton serves."""

    kind: EngineKind

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """Versions of everything that shapes a stage's output: they are part of the keys. Imports no toolkit."""

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse what cannot work, judged by names, sizes and small documents, before any pod starts.

        Args:
            spec: what was asked.
            site: where.
            source: the files that will be taken.
            documents: config.json and tokenizer_config.json of the source, as far as it has them, and each adapter's
                adapter_config.json by its path in the download artifact.

        Raises:
            InputError: this kind cannot make or serve what the spec asks for.
        """

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Bytes of download, of scratch and of memory that the hungriest step needs."""

    def quantize(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        *,
        calibration: Sequence[str],
        perplexity_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Write the model in the asked format to `out`, which exists and is empty.

        Args:
            checkpoint: folder in Hugging Face layout; it is only read.
            spec: what was asked.
            out: owned by the caller.
            calibration: texts that a quantizer may look at.
            perplexity_texts: texts to measure on; none: nothing is measured.

        Returns:
            Metrics, among them `perplexity` and `source_perplexity` where they were measured; None: not finite.

        Raises:
            InputError: the checkpoint is damaged, or its architecture is unknown to this kind.
        """

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Write the engine to `out`, which exists and is empty: all that serving reads, and `engine.json`.

        Args:
            checkpoint: what quantize wrote; it is only read.
            spec: what was asked.
            out: owned by the caller.

        Returns:
            What `engine.json` holds: versions, limits and precision as read back from the engine.

        Raises:
            InputError: the engine does not load, or is not what was asked for.
        """

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Values for `model_repository_templates/<kind>/`, from the `engine.json` that build wrote to `engine_dir`."""
