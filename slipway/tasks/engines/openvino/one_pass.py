"""Logits of OpenVINO IR for a whole sequence at once, without a scheduler or a paged cache."""

from pathlib import Path
from typing import Any

from slipway.tasks.engines.checkpoint.perplexity import Logits
from slipway.tasks.engines.cpus import available_cpus
from slipway.tasks.engines.openvino.ir import MODEL


def one_pass(folder: Path) -> Logits:
    """The model of the folder, in the runtime that serves it; each call begins with an empty state."""
    import numpy as np
    import openvino

    compiled = openvino.Core().compile_model(folder / MODEL, "CPU", {"INFERENCE_NUM_THREADS": available_cpus()})
    request = compiled.create_infer_request()
    names = {name for port in compiled.inputs for name in port.get_names()}

    def logits(ids: list[int]) -> Any:
        request.reset_state()
        inputs = {
            "input_ids": np.array([ids], dtype=np.int64),
            "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
            "position_ids": np.arange(len(ids), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, dtype=np.int32),
        }
        request.infer({name: value for name, value in inputs.items() if name in names})
        return request.get_tensor("logits").data[0].copy()

    return logits
