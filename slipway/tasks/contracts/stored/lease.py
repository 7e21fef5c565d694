"""The names of a model's leases, and the Airflow run that a holder belongs to, for the steps and for Airflow.

A lease keeps two runs from changing one model at once. A step's pod acquires it; only Airflow knows whether the run
that holds it is still active. So the holder records its Airflow run in the lease, and the next run's operator looks
that run up.
"""

from dataclasses import dataclass
from typing import Self

from slipway.tasks.contracts.spec.spec import ReleaseSpec

DAG_RUN = "slipway.dev/dag-run"
"""Annotation of a lease, and of a step's pod: the Airflow run that it belongs to."""
ENDED_HOLDERS = "slipway.dev/ended-holders"
"""Annotation of a step's pod: JSON object of resource versions by lease, for leases whose holder has ended."""
DAG_RUN_VARIABLE, ENDED_HOLDERS_VARIABLE = "SLIPWAY_DAG_RUN", "SLIPWAY_ENDED_HOLDERS"
"""Environment variables that pass these two annotations to a step's process."""

OWN = "slipway-"
"""Begins the names of leases."""
ADAPTERS = "adapters__"
"""Begins the ids of DAGs that change a live model's adapters."""
DRILLS = "drill__"
"""Begins the ids of DAGs of drills, which a roll-out waits for: they end by themselves within minutes."""


@dataclass(frozen=True)
class DagRun:
    """An Airflow run, written as `<dag id>/<run id>`; only the run id may hold a slash."""

    dag_id: str
    run_id: str

    def __str__(self) -> str:
        return f"{self.dag_id}/{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The run that `text` names; None when it is not the name of a run."""
        dag_id, separator, run_id = text.partition("/")
        return cls(dag_id, run_id) if dag_id and separator and run_id else None


def lease_names(spec: ReleaseSpec) -> tuple[str, ...]:
    """Leases that a run must hold to change the model: the model's own, then its group's."""
    own = lease_of(spec.name)
    # a model's name has no dot, so its lease cannot be mistaken for a group's
    return (own,) if spec.serving.group is None else (own, f"{OWN}group.{spec.serving.group}")


def lease_of(model: str) -> str:
    """The name of a model's own lease."""
    return f"{OWN}{model}"


def model_of(lease: str) -> str | None:
    """The model whose own lease has this name; None for a group's lease, and for one that is not Slipway's."""
    name = lease.removeprefix(OWN)
    return name if lease.startswith(OWN) and "." not in name else None


def what_stays(model: str) -> str:
    """What a roll-back that failed leaves in the cluster, and until when."""
    return (
        f"The candidate, its Service and the lease of {model} stay until Airflow's DAG remove_failed_pods finds them "
        f"within an hour and a quarter, or until `slipway restore {model}`."
    )
