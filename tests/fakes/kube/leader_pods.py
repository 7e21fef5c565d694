"""Pods of a LeaderWorkerSet's group, as its leader finds them through the API."""

from slipway.tasks.serving.pod import lead

GROUP_KEY = "abc"


def pod(index, *, ready=True, address=True, ending=False, minute=0):
    labels = {lead.GROUP_LABEL: GROUP_KEY, lead.INDEX_LABEL: str(index)}
    created = f"2026-01-01T00:{minute:02d}:0{index}Z"
    metadata = {"name": f"demo-0-{index}" if index else "demo-0", "labels": labels, "creationTimestamp": created}
    metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {}
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]} | (
        {"podIP": f"10.0.0.{index + 1}"} if address else {}
    )
    return {"metadata": metadata, "status": status}


class Pods:
    """What the API lists, one answer per question; the last one is repeated."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def find(self, kind, labels):
        assert (kind, labels) == ("Pod", {lead.GROUP_LABEL: GROUP_KEY})
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def install_mpi(prefix, programs=("mpirun", "orted")):
    """An Open MPI at `prefix`; the PATH it is found on."""
    (prefix / "bin").mkdir(parents=True)
    for name in programs:
        (prefix / "bin" / name).write_text("#!/bin/sh\n")
        (prefix / "bin" / name).chmod(0o755)
    return str(prefix / "bin")
