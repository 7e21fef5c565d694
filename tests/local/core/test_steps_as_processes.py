"""Steps as a pod runs them: exit codes, results, and what is left when one is killed."""

import json
import os
import signal

import pytest

from slipway.tasks import command
from tests.fakes.releases import SPEC
from tests.fakes.store.refusing_s3 import RefusingS3
from tests.local.core.servers import FILES, NO_BUCKET, STRANGER, TOKEN
from tests.support.waiting import PATIENCE_S


def release_uri(result):
    assert result["outcome"] == "done"
    return result["release"]


def artifact_prefix(result, stage):
    return f"artifacts/{stage}/{result['data']['stages'][stage]['key']}"


def wait_for(line, process):
    """Read the step's log until it says so; the line that does."""
    said = ""
    for text in process.stdout:
        said += text
        if line in text:
            return text
    raise AssertionError(f"{line!r} was never said:\n{said}")


def test_plan_and_download_end_well_and_say_so_in_every_place(steps):
    code, planned = steps.plan()
    assert code == 0

    assert steps.run("download", "--release", release_uri(planned)) == 0

    result = steps.read(f"releases/demo/{planned['data']['release_id']}/results/download.json")
    assert (result["outcome"], result["run"], result["error"]) == ("done", "run-1", None)
    assert steps.termination.read_text().startswith("download: acme/model@")
    manifest = steps.read(f"{artifact_prefix(planned, 'download')}/manifest.json")
    assert {file["path"] for file in manifest["files"]} == set(FILES) - {"README.md"}
    assert list(steps.scratch.iterdir()) == []


def test_a_step_that_was_done_is_found_and_not_run_again(steps, hub):
    _, planned = steps.plan()
    steps.run("download", "--release", release_uri(planned))
    hub.switch_off()  # answered after every request before it was logged
    downloads = len(hub.requests("acme/model/model.safetensors"))

    assert steps.run("download", "--release", release_uri(planned)) == 0

    assert steps.read(f"releases/demo/{planned['data']['release_id']}/results/download.json")["outcome"] == "stored"
    assert len(hub.requests("acme/model/model.safetensors")) == downloads


def test_the_rate_of_a_step_is_checked_and_used(steps):
    _, planned = steps.plan()
    download = ("download", "--release", release_uri(planned))

    assert steps.run(*download, "--concurrency", "0") == 65
    assert "--concurrency or --bytes-per-s" in steps.said
    assert steps.run(*download, "--concurrency", "1", "--bytes-per-s", "100000000") == 0


def test_a_readme_only_commit_has_the_same_release(steps):
    _, first = steps.plan("v1")
    _, second = steps.plan("v1-readme", run="run-2")

    assert first["data"]["commit"] != second["data"]["commit"]
    assert first["data"]["release_id"] == second["data"]["release_id"]


def test_a_long_download_tells_how_far_it_is_and_ends_quickly_on_sigterm(steps, hub):
    _, planned = steps.plan(repo="acme/slow")
    hub.switch_on(repo="acme/slow", file="model.safetensors", kind="slow", bytes_per_s=2000)
    process = steps.start("download", "--release", release_uri(planned))
    lines = [wait_for("kB/s", process) for _ in range(2)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)  # the file alone takes longer than two minutes

    assert lines[0] != lines[1]
    assert all("download acme/slow@v1: " in line and " left" in line for line in lines)
    assert process.returncode == 143
    assert list(steps.scratch.iterdir()) == []
    assert "SIGTERM" in steps.termination.read_text()


def test_a_digest_that_never_fits_fails_for_good_and_a_good_revision_then_succeeds(steps):
    _, planned = steps.plan("wrong-digest")

    assert steps.run("download", "--release", release_uri(planned)) == 65

    result = steps.read(f"releases/demo/{planned['data']['release_id']}/results/download.json")
    assert (result["error"]["kind"], result["error"]["exit_code"]) == ("DigestMismatchError", 65)
    assert "claimed_at" in steps.read(f"{artifact_prefix(planned, 'download')}/manifest.json")
    assert f"{artifact_prefix(planned, 'download')}/model.safetensors" not in steps.keys("artifacts/download/")
    _, good = steps.plan("v1", run="run-2")
    assert steps.run("download", "--release", release_uri(good)) == 0


def test_bytes_garbled_on_the_way_do_not_reach_the_artifact(steps, hub):
    _, planned = steps.plan()
    hub.switch_on(repo="acme/model", file="model.safetensors", kind="corrupt", after_bytes=100)
    assert steps.run("download", "--release", release_uri(planned)) == 65
    assert "claimed_at" in steps.read(f"{artifact_prefix(planned, 'download')}/manifest.json")
    assert f"{artifact_prefix(planned, 'download')}/model.safetensors" not in steps.keys("artifacts/download/")

    hub.switch_off()

    assert steps.run("download", "--release", release_uri(planned)) == 0


def test_two_processes_may_store_the_same_artifact(steps):
    _, planned = steps.plan()
    both = [steps.start("download", "--release", release_uri(planned)) for _ in range(2)]
    said = [process.communicate(timeout=PATIENCE_S)[0] for process in both]

    assert [process.returncode for process in both] == [0, 0], said
    assert steps.run("download", "--release", release_uri(planned)) == 0


def test_a_hub_that_is_down_is_unavailable_and_the_result_says_so(steps):
    steps.write_site(steps.place.model_dump(mode="json"), "http://127.0.0.1:9")

    code, result = steps.plan()

    assert code == 75
    assert (result["outcome"], result["error"]["exit_code"]) == ("failed", 75)
    assert "http://127.0.0.1:9 does not answer" in steps.termination.read_text()


def test_an_object_store_that_is_down_is_unavailable(steps, hub):
    down = steps.place.model_dump(mode="json") | {"endpoint": "http://127.0.0.1:9"}
    steps.write_site(down, hub.endpoint)

    code, _ = steps.plan()

    assert code == 75
    assert "http://127.0.0.1:9 does not answer" in steps.termination.read_text()


def test_a_bucket_that_is_missing_is_wrong_input(steps, hub):
    steps.write_site(steps.place.model_dump(mode="json") | {"bucket": NO_BUCKET}, hub.endpoint)

    code, _ = steps.plan()

    assert code == 65
    assert f"bucket {NO_BUCKET} does not exist" in steps.termination.read_text()


@pytest.mark.parametrize(("token", "reason"), [(None, "source.token_secret"), (STRANGER, "has no access")])
def test_a_gated_model_is_refused_before_any_download(steps, token, reason):
    code, result = steps.plan("main", repo="acme/gated", **({"HF_TOKEN": token} if token else {}))

    assert code == 65
    assert reason in result["error"]["message"]


def test_no_secret_is_said_anywhere(steps, credentials):
    code, planned = steps.plan("main", repo="acme/gated", HF_TOKEN=TOKEN)
    assert code == 0
    assert steps.run("download", "--release", release_uri(planned), HF_TOKEN=TOKEN) == 0
    steps.plan("main", repo="acme/gated", run="refused", HF_TOKEN=STRANGER)

    stored = json.dumps([steps.read(key) for key in steps.keys("") if key.endswith(".json")])
    for secret in (TOKEN, STRANGER, credentials["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in steps.said
        assert secret not in stored
        assert secret not in steps.termination.read_text()


@pytest.fixture
def in_this_process(steps):
    """Run the command where every package is imported already; the exit code."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield lambda *arguments, **variables: command.main(arguments, {**os.environ, **steps.environment, **variables})
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("arguments", "culprit"),
    [
        (["plan", "--run", "r"], "--spec"),
        (["plan", "--run", "r", "--spec", "no-such-spec.yaml"], "no-such-spec.yaml"),
        (["plan", "--run", "r", "--spec", "{broken"], "--spec is not valid JSON"),
        (["plan", "--run", "r", "--spec", '{"kind": "Release"}'], "apiVersion"),
        (
            ["plan", "--run", "r", "--spec", json.dumps(SPEC | {"souce": 1})],
            "souce: is not a field (did you mean source?)",
        ),
        (["plan", "--run", "r/../x", "--spec", "specs/demo.yaml"], "run"),
        (["downlaod", "--release", "s3://b/x"], "downlaod"),
        (["download", "--release", "a/release.json"], "invalid address of an object"),
        (["download", "--release", "{root}/nothing.json"], "does not exist at"),
        (["gate", "--release", "{root}/x", "--site", "no-such-site.yaml"], "no-such-site.yaml"),
    ],
)
def test_a_wrong_request_is_wrong_input_and_names_what_is_wrong(steps, in_this_process, capsys, arguments, culprit):
    words = [argument.replace("{root}", steps.place.root) for argument in arguments]

    assert in_this_process(*words) == 65
    assert culprit in steps.termination.read_text()
    assert "Traceback" not in capsys.readouterr().out


def test_a_revision_that_the_hub_lacks_is_refused_and_leaves_only_that(steps, in_this_process):
    spec = json.dumps({**SPEC, "source": {"repo": "acme/model", "revision": "v9"}})

    assert in_this_process("plan", "--run", "r", "--spec", spec) == 65

    assert "has no revision 'v9'" in steps.termination.read_text()
    assert steps.keys("") == ["releases/demo/plans/r.json"]


def test_credentials_that_the_object_store_does_not_know_are_wrong_input(steps, hub, place):
    with RefusingS3() as store:
        steps.write_site(place.model_dump(mode="json") | {"endpoint": store.endpoint}, hub.endpoint)
        code = steps.run("plan", "--spec", json.dumps(SPEC), "--run", "r", AWS_SECRET_ACCESS_KEY="planted-secret")

    assert code == 65
    message = steps.termination.read_text()
    assert f"{store.endpoint} rejects the credentials" in message
    assert "InvalidAccessKeyId" in message
    assert "read, write and list" in message
    assert "planted-secret" not in steps.said
    assert "Traceback" not in steps.said


def test_a_request_document_reaches_plan_as_it_was_written_however_long_it_is(steps):
    long = [{"prompt": "$(HOME) é" * 25_000, "answer": "Four."}]
    request = {
        "spec": {**SPEC, "gate": {**SPEC["gate"], "smoke": long}, "source": {"repo": "acme/model"}},
        "run": "long",
    }
    uri = f"{steps.place.root}/requests/demo/long/plan.json"
    steps.store.put_bytes(uri, json.dumps(request).encode())

    assert steps.run("plan", "--request", uri) == 0

    release = steps.read(steps.read("releases/demo/plans/long.json")["release"].removeprefix(f"{steps.place.root}/"))
    assert release["spec"]["gate"]["smoke"][0]["prompt"] == long[0]["prompt"]


def test_a_site_that_is_not_given_is_asked_for(steps, in_this_process):
    assert in_this_process("plan", "--run", "r", "--spec", "{}", SLIPWAY_SITE="") == 65
    assert "SLIPWAY_SITE" in steps.termination.read_text()
