"""A model's lease in the hands of somebody who may edit it: at worst the model waits, and the refusal says for what."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.tasks.adapters.kube.lease_object import MOST_CHARS, holder_of, spec_of
from slipway.tasks.contracts.errors import ConflictError, InputError
from slipway.tasks.contracts.stored.lease import DAG_RUN
from slipway.tasks.rollout.act.release_lock import ReleaseLock
from slipway.tasks.steps import promote, roll_back, roll_out
from tests.fakes.clock import ManualClock
from tests.fakes.documents.rollouts import channel, judged, published, released, version
from tests.fakes.kube.cluster import standing
from tests.support.refused import refused

NAME = "slipway-demo"
NOW = ManualClock().now()


def lease(annotations=None, **spec):
    """As the run `run-of-somebody` writes it, but for `spec`."""
    metadata = {"name": NAME, "namespace": "models", "resourceVersion": "7", "annotations": annotations}
    return {"metadata": metadata, "spec": spec_of("run-of-somebody", 60, NOW, NOW) | spec}


@pytest.fixture
def waiting(workspace):
    """A candidate that passed its gate, beside a live release."""
    released(workspace, 1)
    made = version(2)
    published(workspace, made)
    roll_out.run(made, workspace)
    judged(workspace, made)
    return made


def changed(cluster, document):
    cluster.objects["Lease", NAME]["holder"] = holder_of(document)


@pytest.mark.parametrize(
    "spec",
    [
        {"renewTime": "tomorrow"},
        {"renewTime": "2026-01-01T00:00:00"},
        {"renewTime": 1},
        {"renewTime": "9999-12-31T23:59:59Z"},
        {"acquireTime": "\x1b[2J"},
        {"leaseDurationSeconds": 10**400},
        {"leaseDurationSeconds": "60"},
        {"leaseDurationSeconds": float("nan")},
        {"holderIdentity": "x" * 2**20},
        {"holderIdentity": "\x1b]0;mine\x07"},
        {"acquireTime": ["now"]},
    ],
    ids=str,
)
def test_a_lease_that_no_run_wrote_is_refused_in_words(spec):
    with refused(what="changed by somebody else", remedy="kubectl -n models delete lease slipway-demo"):
        holder_of(lease(**spec))


def test_a_refusal_repeats_little_of_what_the_lease_holds():
    with pytest.raises(InputError) as refusal:
        holder_of(lease(renewTime="x" * 2**20))

    assert len(refusal.value.found) < 200


@pytest.mark.parametrize("run", ["x" * (MOST_CHARS + 1), "release__demo/\u202egnp"])
def test_an_annotation_that_no_run_wrote_is_refused(run):
    with refused(found="that is not a run's"):
        holder_of(lease({DAG_RUN: run}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("holderIdentity", "renewTime", "acquireTime", "leaseDurationSeconds")


@given(spec=st.dictionaries(st.sampled_from(FIELDS), JSON), run=JSON)
def test_whatever_a_lease_holds_there_is_a_holder_or_none_or_a_refusal(spec, run):
    found = None
    with contextlib.suppress(InputError):
        found = holder_of(lease({DAG_RUN: run}, **spec))

    assert found is None or (found.until.tzinfo and f"{found.holder}{found.dag_run}".isprintable())


def test_a_lease_that_ends_in_centuries_is_refused_with_the_way_out(workspace, cluster, waiting):
    changed(cluster, lease(renewTime="9000-01-01T00:00:00Z"))
    before = standing(cluster)

    with refused(ConflictError, remedy=f"kubectl -n {cluster.namespace} delete lease {NAME}"):
        roll_out.run(version(3), workspace)
    assert standing(cluster) == before

    cluster.delete("Lease", NAME)
    published(workspace, version(3))
    roll_out.run(version(3), workspace)
    judged(workspace, version(3))
    promote.run(version(3), workspace)
    assert standing(cluster)["services"] == {"demo": version(3).id}


def test_a_run_whose_lease_was_given_to_another_promotes_nothing_and_leaves_the_live_release(
    workspace, cluster, waiting
):
    changed(cluster, lease(holderIdentity="run-of-nobody"))

    with refused(ConflictError, what="lost the lease", found="run-of-nobody"):
        promote.run(waiting, workspace)
    roll_back.run(waiting, workspace)
    assert channel(workspace).live.release_id == version(1).id == standing(cluster)["services"]["demo"]

    workspace.clock.sleep(61)
    published(workspace, version(3))
    roll_out.run(version(3), workspace)
    judged(workspace, version(3))
    promote.run(version(3), workspace)
    found = standing(cluster)
    assert (found["services"], found["leases"]) == ({"demo": version(3).id}, [])
    assert waiting.id not in found["deployments"]


def test_a_lease_that_was_emptied_costs_the_run_its_promotion_and_nobody_else(workspace, cluster, waiting):
    cluster.delete("Lease", NAME)

    with refused(ConflictError, what="lost the lease", found="no holder"):
        promote.run(waiting, workspace)
    roll_back.run(waiting, workspace)

    assert standing(cluster) == {"deployments": [version(1).id], "services": {"demo": version(1).id}, "leases": []}


def test_a_lease_of_the_runs_own_name_and_another_dag_is_not_its_own(workspace, cluster):
    made = version(2)
    changed_to = lease({DAG_RUN: "release__other/x"}, holderIdentity=made.plan.run)
    cluster.objects["Lease", NAME] = {"metadata": {"name": NAME}, "holder": holder_of(changed_to)}
    lock = ReleaseLock(made.spec, made.plan.run, cluster, workspace.clock, dag_run="release__demo/x")

    with pytest.raises(ConflictError):
        lock.renew()
    lock.release()

    assert cluster.lease_holder(NAME).dag_run == "release__other/x"
