"""From an engine's kind to the one module that knows it."""

from tasks.contracts.errors import InputError
from tasks.contracts.spec import EngineKind
from tasks.engines.protocol import Engine

AVAILABLE: tuple[EngineKind, ...] = ("openvino",)


def engine_for(kind: EngineKind) -> Engine:
    """The engine of a kind.

    Raises:
        InputError: the spec may name the kind, and this version of Slipway has no engine for it yet.
    """
    match kind:
        case "openvino":
            from tasks.engines.openvino import OpenVinoEngine

            return OpenVinoEngine()
        case _:
            raise InputError(
                f"engine.kind {kind}: this version of Slipway has no engine for it, it has {', '.join(AVAILABLE)}. "
                "Choose one of these or upgrade Slipway."
            )
