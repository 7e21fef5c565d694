"""The arguments of vLLM's engine: what assemble wrote to model.json, and the folders where the server has the model."""

import json
from pathlib import Path
from typing import Any


def read_arguments(file: Path, engine: Path) -> dict[str, Any]:
    """Arguments of AsyncEngineArgs; `engine` has the model, and its draft below it."""
    arguments: dict[str, Any] = {"model": str(engine), **json.loads(file.read_text(encoding="utf-8"))}
    speculative = arguments.get("speculative_config", {})
    if "model" in speculative:
        speculative["model"] = str(engine / speculative["model"])
    return arguments
