"""How long a plan will take and what it will cost, from what the same steps took before."""

import pytest

from slipway.tasks.contracts.fit.forecast import Forecast, PastTimes, differences, forecast
from slipway.tasks.contracts.fit.resolution import ResolvedRelease
from slipway.tasks.contracts.stored.bytes_to_move import BytesToMove, StoredFiles, bytes_to_move
from tests.fakes.documents.gpu_site import gpu_site
from tests.fakes.releases import SPEC, release, spec
from tests.fakes.workspace import site

STEPS = ("download", "quantize", "build", "assemble", "publish", "check-network")
SERVED = ("roll-out", "smoke-test", "benchmark", "gate", "promote")
TOOK = PastTimes("demo-000000000000", 10, dict.fromkeys((*STEPS, *SERVED), 60.0))
ON_GPUS = {
    "source": {"repo": "org/model", "revision": "main"},
    "quantization": {"format": "none"},
    "engine": {
        "kind": "vllm",
        "gpu": "NVIDIA-A10G",
        "tensor_parallel": 2,
        "max_batch_size": 8,
        "max_input_tokens": 128,
        "max_sequence_tokens": 256,
    },
}
PRICES = {"cpu_hour": 0.5, "gpu_hour": {"NVIDIA-A10G": 2.0}}


def planned(*, stored=(), download_bytes=10, **changes):
    """A plan of so many bytes with some stages stored."""
    made = release(**changes)
    plan = made.plan
    stages = {stage: one.model_copy(update={"stored": stage in stored}) for stage, one in plan.stages.items()}
    files = ({"path": "model.safetensors", "digest": "sha256:" + "a" * 64, "size_bytes": download_bytes},)
    source = plan.source.model_validate(plan.source.model_dump() | {"files": files})
    return made.spec, plan.model_copy(update={"stages": stages, "source": source})


def foreseen(on, past=TOOK, **plan):
    asked, made = planned(**plan)
    return forecast(ResolvedRelease(asked, on), made, past, moved=bytes_to_move(made, StoredFiles()))


def seconds(found):
    return {each.step: each.seconds for each in found.steps}


def test_a_stage_takes_longer_for_a_larger_model_and_the_other_steps_do_not():
    found = seconds(foreseen(site(), download_bytes=25))

    assert {found[step] for step in STEPS[:5]} == {150.0}
    assert {found[step] for step in SERVED} == {60.0}


@pytest.mark.parametrize(
    ("moves", "brought", "expected"),
    [
        (100, None, 60.0),
        (25, None, 15.0),
        (0, None, 0.0),
        (25, 50, 30.0),  # the earlier download found half of its files in the store
        (100, 0, None),  # it downloaded nothing, so its time says nothing of the network
        (0, 0, 60.0),
    ],
)
def test_the_time_of_download_grows_with_the_bytes_that_come_from_the_hub(moves, brought, expected):
    asked, made = planned(download_bytes=100)
    moved = BytesToMove(download_bytes=moves, download_files=1, copied_bytes=100 - moves, copied_files=1)
    past = PastTimes(TOOK.release_id, 100, TOOK.seconds, downloaded_bytes=brought)

    found = seconds(forecast(ResolvedRelease(asked, site()), made, past, moved=moved))

    assert (found["download"], found["build"]) == (expected, 60.0)


def test_what_is_stored_takes_no_time():
    found = foreseen(site(), stored=("download", "quantize"))

    assert {"download", "quantize"}.isdisjoint(seconds(found))
    assert found.seconds == 60.0 * (len(STEPS) - 2 + len(SERVED))


def test_a_step_that_never_ran_is_named_and_counts_nothing():
    past = PastTimes(TOOK.release_id, 10, {"download": 60.0})

    found = foreseen(site(), past)

    assert found.seconds == 60.0
    assert found.unknown == (*STEPS[1:], *SERVED)


def test_the_document_for_programs_has_the_time_of_all_steps():
    told = foreseen(site())

    assert told.model_dump(mode="json")["seconds"] == 60.0 * (len(STEPS) + len(SERVED))
    assert Forecast.model_validate(told.model_dump(mode="json")) == told


def test_a_first_release_has_no_times_and_no_cost():
    found = foreseen(site(prices={"cpu_hour": 1.0}), None)

    assert (found.of, found.seconds, found.cost) == (None, None, None)
    assert (found.gpu_hours, found.candidate_gpu_hours) == (None, None)
    assert found.unknown == (*STEPS, *SERVED)


def test_cpus_of_steps_and_of_the_candidate_are_paid_by_the_hour():
    found = foreseen(site(prices={"cpu_hour": 30.0, "currency": "EUR"}))

    minutes = len(STEPS) + len(SERVED) + len(SERVED)  # one CPU in each pod; the candidate runs beside five of them
    assert found.cost == pytest.approx(30.0 * minutes / 60)
    assert (found.currency, found.gpu_hours) == ("EUR", 0)


def test_gpu_hours_of_each_step_and_of_the_candidate_add_up():
    told = foreseen(gpu_site(prices=PRICES), **ON_GPUS)

    hours = {each.step: each.gpu_hours for each in told.steps}
    assert (hours["download"], hours["assemble"]) == (0, pytest.approx(2 / 60))
    assert told.candidate_gpu_hours == pytest.approx(told.candidate_gpus * len(SERVED) / 60)
    assert told.gpu_hours == pytest.approx(sum(hours.values()) + told.candidate_gpu_hours)


def test_a_step_without_a_time_has_no_gpu_hours():
    told = foreseen(gpu_site(), None, **ON_GPUS)

    assert {each.gpu_hours for each in told.steps} == {None}


def test_gpus_of_steps_and_of_the_candidate_are_counted_and_priced():
    on = gpu_site(prices=PRICES)

    found = foreseen(on, **ON_GPUS)

    gpus = {each.step: each.gpus for each in found.steps if each.gpus}
    assert gpus == {"assemble": 2}
    assert (found.gpu, found.candidate_gpus) == ("NVIDIA-A10G", 2)
    assert found.gpu_hours == pytest.approx(2 * (1 + len(SERVED)) / 60)
    without_gpus = 8 * (len(STEPS) - 1 + len(SERVED)) / 60
    assert found.cost == pytest.approx(found.gpu_hours * 2.0 + without_gpus * 0.5)


@pytest.mark.parametrize(
    ("replicas", "ranks", "candidate", "shared"),
    [
        (1, 2, 2, 2),  # live is stopped
        (3, 2, 4, 4),  # live keeps one replica, the candidate has two of its three
        (1, 1, 2, 1),  # the candidate needs one GPU more than live gives up
    ],
)
def test_gpus_that_the_live_release_gives_up_are_not_counted_again(replicas, ranks, candidate, shared):
    on, bounds = gpu_site(prices=PRICES), {"replicas": {"min": replicas, "max": replicas}}
    live = spec(**ON_GPUS | {"engine": ON_GPUS["engine"] | {"tensor_parallel": ranks}}, serving=bounds)
    changes = {**ON_GPUS, "serving": bounds, "rollout": {"surge": "none"}}
    asked, made = planned(**changes)

    told = forecast(ResolvedRelease(asked, on), made, TOOK, moved=bytes_to_move(made, StoredFiles()), live=live)

    added = (candidate - shared) * len(SERVED) / 60
    assert (told.candidate_gpus, told.shared_gpus) == (candidate, shared)
    assert told.candidate_gpu_hours == pytest.approx(added)
    assert told.gpu_hours == pytest.approx(sum(each.gpu_hours for each in told.steps) + added)


def test_a_first_release_without_a_surge_has_gpus_of_its_own():
    told = foreseen(gpu_site(), **ON_GPUS, rollout={"surge": "none"})

    assert (told.candidate_gpus, told.shared_gpus) == (2, 0)
    assert told.candidate_gpu_hours == pytest.approx(2 * len(SERVED) / 60)


def test_cpus_that_the_live_release_gives_up_cost_nothing_more():
    on, changes = site(prices={"cpu_hour": 30.0}), {"rollout": {"surge": "none"}}
    asked, made = planned(**changes)

    told = forecast(
        ResolvedRelease(asked, on), made, TOOK, moved=bytes_to_move(made, StoredFiles()), live=spec(**changes)
    )

    assert told.cost == pytest.approx(30.0 * (len(STEPS) + len(SERVED)) / 60)


def test_a_gpu_without_a_price_leaves_the_cost_unknown():
    found = foreseen(gpu_site(prices=PRICES | {"gpu_hour": {}}), **ON_GPUS)

    assert found.cost is None
    assert found.gpu_hours > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ()),
        ({"engine": ON_GPUS["engine"] | {"gpu": "NVIDIA-L4"}}, ("engine.gpu: NVIDIA-L4 → NVIDIA-A10G",)),
        ({"engine": ON_GPUS["engine"] | {"tensor_parallel": 1}}, ("engine.tensor_parallel: 1 → 2",)),
        ({"engine": ON_GPUS["engine"] | {"max_batch_size": 4}}, ()),
        ({"gate": SPEC["gate"] | {"benchmark": {"requests": 500}}}, ("gate.benchmark differs",)),
        ({"download_bytes": 5}, ()),
        ({"download_bytes": 80}, ("the model has 0.12 times the bytes",)),
        ({"download_bytes": 4}, ("the model has 2.5 times the bytes",)),
    ],
)
def test_what_times_depend_on_is_compared_with_the_release_that_left_them(changes, words):
    asked, made = planned(**ON_GPUS)
    past_spec, past_plan = planned(**ON_GPUS | changes)
    past = release().model_copy(update={"spec": past_spec, "plan": past_plan})

    assert differences(asked, made, past) == words


def test_a_price_of_a_gpu_that_the_site_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"prices\.gpu_hour names NVIDIA-H200"):
        gpu_site(prices={"cpu_hour": 1, "gpu_hour": {"NVIDIA-H200": 4}})
