"""Engine kind `openvino` in pods. quantize.py and build.py use the toolkits; they are imported when a pod runs."""

import json
from pathlib import Path
from typing import Any

from typing_extensions import override

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.protocol import EngineMaker
from slipway.tasks.serving.rendered.paths import ENGINE_DESCRIPTION, ENGINE_FOLDER


class OpenVinoMaker(EngineMaker):
    """Traces a checkpoint to OpenVINO IR and compresses it."""

    @override
    def quantize(self, checkpoint: Path, spec: ReleaseSpec, out: Path, texts: Texts) -> dict[str, Any]:
        from slipway.tasks.engines.openvino.quantize import quantize

        return quantize(checkpoint, spec, out, texts.perplexity)

    @override
    def build(self, checkpoint: Path, spec: ReleaseSpec, out: Path) -> dict[str, Any]:
        """Add tokenizer and detokenizer as IR, load everything as serving will, and generate one token."""
        from slipway.tasks.engines.openvino.build import build

        return build(checkpoint, spec, out)

    @override
    def template_values(self, engine_dir: Path, spec: ReleaseSpec) -> dict[str, Any]:
        """The engine's folder, and what build read back from it.

        Returns:
            `name`, `kind`, `engine_folder`, `chat_template` (apply or none), `chat_template_kwargs`, `scores_prompts`,
            the limits of the spec's engine section, `scheduler` (fields of openvino_genai.SchedulerConfig),
            `properties` (of the CPU plugin), `versions`.
        """
        description = json.loads((engine_dir / ENGINE_DESCRIPTION).read_bytes())
        return {
            "name": spec.name,
            "kind": spec.engine.kind,
            "engine_folder": ENGINE_FOLDER,
            "chat_template": "apply" if description["chat_template"] else "none",
            "chat_template_kwargs": spec.engine.chat_template_kwargs,
            "scores_prompts": spec.engine.options.get("prompt_logprobs", False),
            **description["limits"],
            **{name: description[name] for name in ("scheduler", "properties", "versions")},
        }
