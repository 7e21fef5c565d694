"""Where the files of a release are in its Triton repository, and where a serving pod has the repository."""

REPOSITORY_ROOT = "/models/repository"
"""Where the init container of a serving pod puts the Triton repository: backends of TensorRT-LLM and vLLM take absolute
paths only (triton-inference-server/tensorrtllm_backend#181)."""

ADAPTERS_ROOT = "/models/adapters"
"""The folder in which a pod has the adapters that are added to its live release."""

MODEL_VERSION = "1"
"""The one version of each Triton model."""

ENGINE_FOLDER = "engine"
"""Where engine files are inside a version of a Triton model, as in `<model>/1/engine`."""

ENGINE_DESCRIPTION = "engine.json"
"""What build read back from the engine it made. Templates are filled from it."""
