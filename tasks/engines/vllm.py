"""Engine kind `vllm`: a checkpoint, as it is or quantized by ModelOpt, and its adapters, by Triton's vllm backend."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.contracts.artifact import Stage
from tasks.contracts.compatibility import image_of
from tasks.contracts.plan import Estimate, Source, adapter_folder
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.gpu_options import (
    COMMON,
    EAGER,
    MAX_LORAS,
    PREFIX_CACHING,
    check_gpu_engine,
    check_options,
)
from tasks.engines.hf_checkpoint import (
    adapter_ranks,
    check_modelopt,
    checkpoint_values,
    described_checkpoint,
    modelopt_tools,
    quantized_checkpoint,
    quantizing_estimate,
)
from tasks.engines.lora import adapter_arguments, check_adapters
from tasks.engines.memory import batched_tokens

OPTIONS = {**COMMON, "enforce_eager": EAGER, "prefix_caching": PREFIX_CACHING, "max_loras": MAX_LORAS}


class VllmEngine:
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "vllm"

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """ModelOpt makes the checkpoint, whatever the GPU; vLLM only reads it."""
        runtime = {"vllm": image_of(serving_image, self.kind).runtime}
        return {
            "quantize": modelopt_tools(spec, site),
            "build": runtime,
            "assemble": {"image": serving_image, **runtime},
        }

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse what ModelOpt cannot make, the runtime cannot load, or the GPUs cannot hold."""
        check_options(spec, OPTIONS)
        check_adapters(spec, documents)
        check_gpu_engine(spec, site, source, documents)
        check_modelopt(spec, site)

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Of quantize, which holds the whole model in the host's memory unless it passes it on as it is."""
        return quantizing_estimate(spec, source)

    def quantize(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        *,
        calibration: Sequence[str],
        perplexity_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Quantize with ModelOpt to a checkpoint in Hugging Face layout; format none passes it on as it is."""
        return quantized_checkpoint(checkpoint, spec, out, calibration, perplexity_texts)

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """The checkpoint itself and what it says; the arguments of the runtime are the repository's model.json."""
        return described_checkpoint(checkpoint, spec, out)

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """From what build wrote down; `options` are further fields of AsyncEngineArgs.

        `loras` is each adapter's folder below the engine's, by the name that requests choose it by.
        """
        asked, ranks = spec.engine.options, adapter_ranks(engine_dir)
        return {
            **checkpoint_values(engine_dir, spec),
            "loras": {name: adapter_folder(name) for name in ranks},
            "options": {
                "max_num_batched_tokens": batched_tokens(spec),
                "enable_prefix_caching": asked.get("prefix_caching", True),
                "enforce_eager": asked.get("enforce_eager", False),
                "trust_remote_code": False,
                **adapter_arguments(spec, ranks),
            },
        }
