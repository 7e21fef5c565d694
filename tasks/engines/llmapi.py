"""Engine kind `llmapi`: a checkpoint quantized by ModelOpt, loaded by TensorRT-LLM's LLM API. Nothing is built."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.contracts.artifact import Stage
from tasks.contracts.compatibility import image_of
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.gpu_options import COMMON, PREFIX_CACHING, check_gpu_engine, check_options
from tasks.engines.hf_checkpoint import (
    check_modelopt,
    checkpoint_values,
    described_checkpoint,
    modelopt_tools,
    quantized_checkpoint,
    quantizing_estimate,
)
from tasks.engines.memory import batched_tokens

OPTIONS = {**COMMON, "prefix_caching": PREFIX_CACHING}


class LlmApiEngine:
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "llmapi"

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """ModelOpt makes the checkpoint, whatever the GPU; TensorRT-LLM only reads it."""
        runtime = {"tensorrt_llm": image_of(serving_image, self.kind).runtime}
        return {
            "quantize": modelopt_tools(spec, site),
            "build": runtime,
            "assemble": {"image": serving_image, **runtime},
        }

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse what ModelOpt cannot make, the runtime cannot load, or the GPUs cannot hold."""
        check_options(spec, OPTIONS)
        check_gpu_engine(spec, site, source, documents)
        check_modelopt(spec, site)

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Of quantize, which holds the whole model in the host's memory."""
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
        """The checkpoint itself and what it says; the arguments of the runtime are the repository's model.yaml."""
        return described_checkpoint(checkpoint, spec, out)

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """From what build wrote down; `options` are further fields of LLM()."""
        return {
            **checkpoint_values(engine_dir, spec),
            "prefix_caching": spec.engine.options.get("prefix_caching", True),
            "options": {"max_num_tokens": batched_tokens(spec), "trust_remote_code": False},
        }
