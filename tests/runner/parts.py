"""The parts of the test suite: what each needs, and what it takes beside others on two cores.

A part is a folder without the folders and files that are parts of their own. `seconds` and `cpus` only decide the order
and how many run at once: copy them from .slipway/test-durations.txt when they are far off. Airflow takes a third of a CPU for
as long as its stack stands, so that there is one, which begins at once.
"""

from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import REPOSITORY


@dataclass(frozen=True)
class Environment:
    """One of local/environments.py; what making it takes from a warm package cache."""

    seconds: float
    cpus: float = 1.0


ENVIRONMENTS = {
    "tasks": Environment(28),
    "dev": Environment(8),
    "airflow": Environment(20),
    "local": Environment(8),
    "triton": Environment(12),
    "front": Environment(2),
    "helm": Environment(5, 0.5),
    "clients": Environment(10),
    "transformers4": Environment(10),
    "harness": Environment(50),
    "modelopt": Environment(10),
    "vllm": Environment(360),
    "vllm-0.24.0": Environment(10),
    "vllm-0.27.1": Environment(10),
    "vllm-0.32.0": Environment(10),
    "xgrammar-0.1.25": Environment(2),
    "xgrammar-0.1.33": Environment(3),
    "xgrammar-0.2.1": Environment(3),
    "xgrammar-0.2.8": Environment(2),
}


@dataclass(frozen=True)
class Part:
    """Tests that run in one process: `python` names the environment whose code they test, `besides` others they use.

    Those that start `pods` write to disk: a container has a /dev/shm of its own, which hides what the machine has there.
    """

    name: str
    seconds: float
    cpus: float = 1.0
    python: str = "tasks"
    besides: tuple[str, ...] = ()
    memory_mb: int = 700
    paths: tuple[str, ...] = field(default=())
    pods: bool = False

    @property
    def environments(self) -> tuple[str, ...]:
        """Everything that must have been made; pytest is in dev."""
        return (self.python, "dev", *self.besides)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """Its folders and files."""
        return self.paths or (f"tests/{self.name}",)


UNIT = "tests/unit"
OF_CONTRACTS = tuple(
    f"{UNIT}/{name}" for name in ("contracts", "engines", "evidence", "manifests", "retention", "steps/gate")
)
OF_ADAPTERS = tuple(f"{UNIT}/{name}" for name in ("adapters", "compatibility", "rollout"))
STACK = ("airflow", "local", "triton", "front")
VLLM = tuple(name for name in ENVIRONMENTS if name.startswith("vllm-"))
XGRAMMAR = tuple(name for name in ENVIRONMENTS if name.startswith("xgrammar-"))
SERVING = "tests/local/serving"
OF_CLIENTS = tuple(
    f"tests/local/rollout/test_{name}.py" for name in ("canaries", "kept_connections", "promoting_under_load")
)
PARTS = (
    Part("unit", 80),
    Part("unit/cli", 130, 0.3),
    Part("unit, contracts and engines", 70, besides=("helm",), paths=OF_CONTRACTS),
    Part("unit, adapters and roll-outs", 80, paths=OF_ADAPTERS),
    Part("contracts", 15),
    Part("contracts/wheels", 35, besides=(*VLLM, *XGRAMMAR, "transformers4"), memory_mb=2000),
    Part("dags", 235, 0.7, python="airflow", besides=("local",), pods=True),
    Part("cluster", 240, 0.3, python="local", paths=("local/cluster/tests",), pods=True),
    Part("local/chain", 560, 0.9, besides=(*STACK, "harness"), memory_mb=4000, pods=True),
    Part("local/steps", 360, 0.6, besides=("local", "triton", "front"), memory_mb=2000, pods=True),
    Part("local/rollout", 350, 0.15, besides=("local", "front"), memory_mb=1000, pods=True),
    Part("local/rollout, clients", 420, 0.15, besides=("local", "front"), memory_mb=1000, paths=OF_CLIENTS, pods=True),
    Part("local/serving", 460, 0.6, besides=("triton", "front", "local", "clients"), memory_mb=1500),
    Part("local/serving, harness", 20, besides=("triton", "front", "harness"), paths=(f"{SERVING}/test_harness.py",)),
    Part("local/stack", 110, 0.4, besides=STACK, memory_mb=1000, pods=True),
    Part("local/engines", 60, besides=("triton",), memory_mb=1500),
    Part("local/families", 160, 0.8, besides=("triton",), memory_mb=1500),
    Part("local/modelopt", 100, 0.8, besides=("modelopt", "transformers4"), memory_mb=2500),
    Part("local/faults", 170, 0.5, besides=("local", "front"), pods=True),
    Part("local/outages", 10, python="local"),
    Part("local/core", 225, 0.5, besides=("local",)),
    Part("local/hub", 15, besides=("local",)),
    Part("local/packaging", 25, besides=("airflow", "local", "helm"), pods=True),
    Part("local/images", 35, besides=("triton", "local")),
    Part("local/monitoring", 10, 0.4, besides=("triton", "front")),
    Part("local/rights", 25, 0.5, besides=("local", "front"), pods=True),
)
BY_NAME = (
    Part("vllm", 1200, besides=("vllm", *STACK), memory_mb=9000, pods=True),
    Part("airflows", 900, 0.9, besides=("local", "triton", "front"), memory_mb=4500, pods=True),
)
"""Parts that belong to no tier: they install 3.4 GB, or what the package index has today."""
TIERS = ("unit", "contracts", "dags", "cluster", "local")


class UnknownPartError(Exception):
    """Nothing of this name can be run; the text says what can."""


def chosen(names: list[str], parts: tuple[Part, ...] = (*PARTS, *BY_NAME)) -> dict[Part, list[str]]:
    """The parts that names of tiers, names of parts or paths mean, with pytest's arguments; all without any."""
    found: dict[Part, list[str]] = {}
    for name in names or TIERS:
        for path in _paths(name, parts):
            owner = _owner(path, parts)
            for part in parts:
                inner = [own for own in part.own_paths if _is_in(own, path)]
                if inner or part is owner:
                    found.setdefault(part, []).extend(inner or [path])
    return {part: [*dict.fromkeys(paths), *_ignoring(part, parts)] for part, paths in found.items()}


def _paths(name: str, parts: tuple[Part, ...]) -> tuple[str, ...]:
    """The paths, from the repository on, that a name means; a test's id is one."""
    for part in parts:
        if part.name == name:
            return part.own_paths
    for path in (name.rstrip("/"), f"tests/{name}"):
        if (_file(path).exists() and _owner(path, parts)) or path in {f"tests/{tier}" for tier in TIERS}:
            return (path,)
    raise UnknownPartError(f"no tests are at {name}: give a path, or one of {', '.join(TIERS)}")


def _owner(path: str, parts: tuple[Part, ...]) -> Part | None:
    """The part of the innermost folder that holds the path."""
    around = {own: part for part in parts for own in part.own_paths if _is_in(path, own)}
    return around[max(around, key=len)] if around else None


def _ignoring(part: Part, parts: tuple[Part, ...]) -> list[str]:
    inner = (own for other in parts if other is not part for own in other.own_paths)
    return [f"--ignore={own}" for own in inner if any(_is_in(own, ours) for ours in part.own_paths)]


def _is_in(path: str, folder: str) -> bool:
    return _file(path).is_relative_to(_file(folder))


def _file(path: str) -> Path:
    return REPOSITORY / path.partition("::")[0]
