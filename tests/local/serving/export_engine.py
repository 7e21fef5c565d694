"""Makes the engine that the serving tests ask: `python -m tests.local.serving.export_engine CHECKPOINT OUT`.

The steps' own code, in a process of its own: torch and the toolkits stay out of the tests.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from slipway.tasks.contracts.spec.spec import ReleaseSpec
from slipway.tasks.engines.checkpoint.calibration_texts import Texts
from slipway.tasks.engines.registry import maker_for

SPEC = {
    "apiVersion": "slipway/v1",
    "kind": "Release",
    "name": "demo",
    "source": {"repo": "slipway/demo-llama"},
    "quantization": {"format": "int8"},
    "engine": {"kind": "openvino", "max_batch_size": 16, "max_input_tokens": 64, "max_sequence_tokens": 256},
    "gate": {
        "smoke": [{"prompt": "What is the capital of France?", "answer": "The capital of France is Paris."}],
        "expect": [{"metric": "smoke_accuracy", "at_least": 1.0}],
    },
}


def main(checkpoint: Path, out: Path) -> None:
    spec, engine = ReleaseSpec.model_validate(SPEC), maker_for("openvino")
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        quantized, built = Path(scratch, "quantized"), Path(scratch, "built")
        quantized.mkdir()
        built.mkdir()
        engine.quantize(checkpoint, spec, quantized, Texts())
        engine.build(quantized, spec, built)
        (built / "template_values.json").write_text(json.dumps(engine.template_values(built, spec)))
        shutil.move(built, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
