"""The next move towards other adapters of a live release, by the document that its pods follow. Pure.

A run that was killed at any point reads the document and continues: each move changes it once, when what the move waits
for is true.
"""

from collections.abc import Sequence
from enum import StrEnum

from slipway.tasks.contracts.stored.adapters import AdapterEntry, Adapters


class AdapterMove(StrEnum):
    """One change of the document."""

    TRY = "try at one pod"
    GATE = "gate at that pod"
    NAME = "change what names mean"
    LIST = "have every pod confirm the names, and list them"
    FORGET = "forget what another run tried"


def next_move(document: Adapters, wanted: Sequence[AdapterEntry], run: str) -> AdapterMove | None:
    """What is next until names mean `wanted` at every pod and are listed; None when they are.

    Args:
        document: as it is now.
        wanted: the adapters to reach.
        run: the run that acts. What another one tried is tried again; its own trial stays at the pod that it chose.
    """
    trial = document.trial
    if document.means(wanted):
        if not document.confirmed:
            return AdapterMove.LIST
        return AdapterMove.FORGET if trial else None
    if not (new := document.missing(wanted)):
        return AdapterMove.NAME
    if trial is None or trial.run != run or trial.adapters != new:
        return AdapterMove.TRY
    return AdapterMove.GATE if trial.pod else AdapterMove.NAME
