"""The folders that programs write to, which containers mount writable. Pure.

Every container has a read-only root file system, so a program writes here or fails. tests/contracts/written_paths.yaml
records what each program was observed to write, and a test compares it with the rendered pods, with WRITES for
serving containers, and with the records of steps (slipway/tasks/contracts/fit/step_kinds.py).
"""

from dataclasses import dataclass
from typing import Any, Literal

ServingContainer = Literal["fetch-repository", "front", "openai", "adapters", "triton", "node"]
"""Containers of serving pods, by their names in k8s_manifests/serving; `node` is sshd, for a leader's ranks."""
TEMPORARY_SIZE, TEMPORARY_SIZE_WITH_GPUS = "1Gi", "10Gi"
"""The CPU server wrote 4 KiB. On GPUs HOME is here too, with kernels that vLLM, FlashInfer and PyTorch compile."""
SHARED_MEMORY_GIB = 1
"""Triton's Python backend starts with 1 MiB per model instance, and grows by the size of requests in flight."""
SHARED_MEMORY_GIB_PER_RANK = 2
"""Ranks exchange tensors through the shared-memory transports of NCCL and MPI."""


@dataclass(frozen=True)
class Folder:
    """A folder that a program writes to, and the emptyDir that is mounted there."""

    volume: str
    path: str
    why: str

    def mount(self) -> dict[str, Any]:
        """The container's volumeMount."""
        return {"name": self.volume, "mountPath": self.path}


SCRATCH = Folder("scratch", "/scratch", "SLIPWAY_SCRATCH, TMPDIR and HOME of steps: models, toolkits' caches")
MODELS = Folder("models", "/models", "fetch-repository writes the model repository, which the server only reads")
TEMPORARY = Folder(
    "tmp",
    "/tmp",  # noqa: S108 - the container's
    "Triton's Python backend makes /tmp/python_env_XXXXXX whatever TMPDIR says (EnvironmentManager in src/pb_env.cc of "
    "triton-inference-server/python_backend); HOME of servers",
)
SHARED_MEMORY = Folder(
    "shared-memory",
    "/dev/shm",  # noqa: S108 - the container's
    "regions of Triton's Python backend, transports of NCCL and MPI; without a mount a container has 64 MiB",
)
FRONT = Folder(
    "front",
    "/run/front",
    "sockets: of Envoy's admin interface, which the server's preStop hook connects to, and of OpenAI's API for Envoy",
)

WRITES: dict[ServingContainer, tuple[Folder, ...]] = {
    "fetch-repository": (MODELS, TEMPORARY),
    "front": (FRONT,),
    "openai": (FRONT,),
    "adapters": (MODELS, TEMPORARY),
    "triton": (TEMPORARY, SHARED_MEMORY, FRONT),
    "node": (TEMPORARY, SHARED_MEMORY),
}


def volumes(folders: tuple[Folder, ...], scratch: str, gpus: int, ranks: int) -> list[dict[str, Any]]:
    """The pod's volumes for `folders`, in their order.

    Args:
        folders: the folders, without duplicates.
        scratch: the shape's size limit for models and files of steps.
        gpus: number of the pod's GPUs.
        ranks: number of the pod's ranks that exchange tensors; 0 for a single rank.
    """
    shared = f"{SHARED_MEMORY_GIB + SHARED_MEMORY_GIB_PER_RANK * ranks}Gi"
    sources: dict[str, dict[str, Any]] = {
        SCRATCH.volume: {"sizeLimit": scratch},
        MODELS.volume: {"sizeLimit": scratch},
        TEMPORARY.volume: {"sizeLimit": TEMPORARY_SIZE_WITH_GPUS if gpus else TEMPORARY_SIZE},
        SHARED_MEMORY.volume: {"medium": "Memory", "sizeLimit": shared},
        FRONT.volume: {"medium": "Memory", "sizeLimit": "1Mi"},
    }
    return [{"name": folder.volume, "emptyDir": sources[folder.volume]} for folder in folders]
