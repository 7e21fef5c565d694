"""Engine kind `openvino`: weights compressed by NNCF, served on CPU by OpenVINO GenAI's continuous batching.

What the toolkits do stands in openvino_quantize.py and openvino_build.py, which are imported when they are needed.
"""

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tasks.contracts.artifact import Stage
from tasks.contracts.errors import InputError
from tasks.contracts.plan import Estimate, Source
from tasks.contracts.site import Site
from tasks.contracts.spec import EngineKind, ReleaseSpec
from tasks.engines.announced import Documents
from tasks.engines.checkpoint import CONFIG, check_files, check_limits
from tasks.engines.protocol import ENGINE_DESCRIPTION, ENGINE_FOLDER

QUANTIZE_TOOLS = ("torch", "transformers", "optimum-intel", "nncf", "openvino")
BUILD_TOOLS = ("openvino", "openvino-genai", "openvino-tokenizers", "transformers")

OPTIONS = {"threads": "1 or more, one when absent", "prefix_caching": "true or false"}
"""engine.options of this kind: inference threads, and whether prompts that begin alike share their cache."""

MODEL = "openvino_model.xml"
KV_CACHE_PRECISION = {"none": "f16", "int8": "u8"}
"""As the CPU plugin names them. The IR carries the choice, for the plugin's own default is 8 bit."""

FP32_RATIO = 2
"""Bytes of the traced graph per byte of a 16-bit checkpoint."""

MEMORY_RATIO = 5
"""Bytes of memory per byte of a 16-bit checkpoint: 32-bit weights in torch and in the graph, and what compression adds.
Measured of quantize: 4.5 with 254 million parameters."""

TOOLKIT_BYTES = 768 * 2**20
"""Resident set of torch, transformers, optimum-intel and NNCF with a model of next to no size; measured: 615 MiB."""


class OpenVinoEngine:
    """See tasks/engines/protocol.py for what each method promises."""

    kind: EngineKind = "openvino"

    def producers(self, spec: ReleaseSpec, site: Site, serving_image: str) -> dict[Stage, dict[str, str]]:
        """Images and toolkit versions by stage."""
        del spec
        return {
            "quantize": {"image": site.images.tasks, **_versions(QUANTIZE_TOOLS)},
            "build": {"image": site.images.tasks, **_versions(BUILD_TOOLS)},
            "assemble": {"image": serving_image},
        }

    def check(self, spec: ReleaseSpec, site: Site, source: Source, documents: Documents) -> None:
        """Refuse options, formats, limits and repositories that this kind cannot use."""
        check_files(source)
        check_limits(dict(documents.get(CONFIG, {})), spec)
        _check_options(spec)
        if spec.quantization.kv_cache == "fp8":
            raise InputError(
                "quantization.kv_cache fp8: openvino keeps its cache as none (16 bit) or int8. Choose one."
            )
        if spec.quantization.calibration is not None:
            raise InputError(
                "quantization.calibration: openvino compresses weights without looking at texts, and none would be "
                "read. Remove it; gate.quality.perplexity measures what the compression costs."
            )
        if not spec.serving.image and self.kind not in site.images.serving:
            raise InputError(
                f"site {site.name} names no serving image for openvino. Add images.serving.openvino to the site file "
                "or serving.image to the spec."
            )

    def estimate(self, spec: ReleaseSpec, source: Source) -> Estimate:
        """Of quantize, the hungriest step.

        Scratch holds the checkpoint, the 32-bit graph, and the compressed one, which is no larger than the checkpoint.
        Weights are taken to be 16-bit: the Hub announces sizes, not types.
        """
        del spec
        weights = sum(file.size_bytes for file in source.files if file.path.endswith(".safetensors"))
        return Estimate(
            download_bytes=source.size_bytes,
            scratch_bytes=2 * source.size_bytes + FP32_RATIO * weights,
            memory_bytes=TOOLKIT_BYTES + MEMORY_RATIO * weights,
        )

    def quantize(
        self,
        checkpoint: Path,
        spec: ReleaseSpec,
        out: Path,
        *,
        calibration: Sequence[str],
        perplexity_texts: Sequence[str],
    ) -> dict[str, Any]:
        """Trace the checkpoint to OpenVINO IR and compress its weights; `calibration` is not looked at."""
        from tasks.engines.openvino_quantize import quantize

        del calibration
        return quantize(checkpoint, spec, out, perplexity_texts)

    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Add tokenizer and detokenizer as IR, load everything as serving will, and generate one token."""
        from tasks.engines.openvino_build import build

        return build(checkpoint, spec, out)

    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """Where the engine lies and what build read back from it.

        Returns:
            `name`, `kind`, `engine_folder`, `chat_template` (apply or none), the limits of the spec's engine section,
            `scheduler` (fields of openvino_genai.SchedulerConfig), `properties` (of the CPU plugin), `versions`.
        """
        description = json.loads((engine_dir / ENGINE_DESCRIPTION).read_bytes())
        return {
            "name": spec.name,
            "kind": self.kind,
            "engine_folder": ENGINE_FOLDER,
            "chat_template": "apply" if description["chat_template"] else "none",
            **description["limits"],
            **{name: description[name] for name in ("scheduler", "properties", "versions")},
        }


def _check_options(spec: ReleaseSpec) -> None:
    for name, value in spec.engine.options.items():
        match name, value:
            case ("prefix_caching", bool()):
                pass
            case ("threads", int()) if value is not True and value is not False and value >= 1:
                pass
            case _:
                raise InputError(
                    f"engine.options.{name} is {value!r}; openvino has the options "
                    f"{', '.join(f'{known} ({expected})' for known, expected in OPTIONS.items())}."
                )


def _versions(tools: Sequence[str]) -> dict[str, str]:
    return {tool: version(tool) for tool in tools}
