"""What a spec may say of a mixture's experts: over how many ranks they are shared out, and where attention runs."""

from slipway.tasks.contracts.engine.engine_kinds import ENGINE_KINDS, EngineKind, kinds_with


def expert_problem(kind: EngineKind, tensor_parallel: int, *, experts: int, attention_dp: bool) -> str | None:
    """What is wrong with engine.expert_parallel or engine.attention_dp of an engine kind; None: nothing.

    Args:
        kind: the engine's kind.
        tensor_parallel: engine.tensor_parallel.
        experts: engine.expert_parallel.
        attention_dp: engine.attention_dp.
    """
    if attention_dp and not ENGINE_KINDS[kind].attention_dp:
        return (
            f"{kind} cannot give each rank the attention of its own requests: remove attention_dp, or choose "
            f"{', '.join(kinds_with('attention_dp'))}"
        )
    if attention_dp and tensor_parallel == 1:
        return "attention_dp divides requests between ranks, and tensor_parallel is 1: raise it, or remove attention_dp"
    return None if experts == 1 else _sharing_problem(kind, tensor_parallel, experts)


def _sharing_problem(kind: EngineKind, tensor_parallel: int, experts: int) -> str | None:
    over = ENGINE_KINDS[kind].expert_parallel
    if over == "none":
        sharing = [name for name, traits in ENGINE_KINDS.items() if traits.expert_parallel != "none"]
        return f"{kind} cannot share out experts: remove expert_parallel, or choose {', '.join(sharing)}"
    if over == "all" and experts != tensor_parallel:
        return (
            f"{kind} shares out experts over all ranks of tensor_parallel {tensor_parallel}, or over none; found "
            f"expert_parallel {experts}"
        )
    if tensor_parallel % experts:
        return f"expert_parallel {experts} does not divide tensor_parallel {tensor_parallel}, whose ranks it groups"
    return None
