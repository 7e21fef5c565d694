"""`slipway batch`: each prompt has one result, whatever stopped the batch before."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from slipway.cli.ask.batch import Pace, _Batch
from slipway.cli.ask.batch_files import ResultsFile, read_prompts
from slipway.cli.ask.model_connection import ModelServers
from slipway.cli.ask.prompt_sender import PromptSender
from slipway.cli.exit_codes import INTERRUPTED
from tests.fakes.servers.triton_http import TritonHttpServer
from tests.support.paths import REPOSITORY
from tests.support.waiting import PATIENCE_S, until

PARIS = [{"text_output": "Par"}, {"text_output": "is."}, {"text_output": "", "finish_reason": "stop"}]


@pytest.fixture
def triton():
    with TritonHttpServer(answers=PARIS) as server:
        yield server


@pytest.fixture
def files(tmp_path):
    return tmp_path / "prompts.jsonl", tmp_path / "results.jsonl"


@pytest.fixture
def run(slipway, triton, files):
    """Run the batch on `files` against `triton`; its exit code and what it printed."""
    prompts, results = files
    return lambda *options: slipway(
        "batch", "demo", str(prompts), "-o", str(results), "--host", f"127.0.0.1:{triton.port}", *options
    )


@pytest.fixture
def start(triton, files):
    """Start the batch as a process of its own."""

    def started(*options):
        prompts, results = files
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        command = [sys.executable, "-m", "slipway", "batch", "demo", str(prompts), "-o", str(results)]
        command += ["--host", f"127.0.0.1:{triton.port}", *options]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)

    return started


def write(file, *prompts):
    file.write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def asked(triton):
    return sorted(request["text_input"] for request in triton.asked)


def test_a_prompt_may_set_what_a_request_of_openai_s_api_may(run, triton, files):
    prompts, _ = files
    triton.inputs += ("top_p", "stop_words")
    write(prompts, {"prompt": "one", "temperature": 0.5, "top_p": 0.9, "stop": ["END"]})

    code, printed = run()

    assert code == 0, printed
    assert {name: triton.asked[0][name] for name in ("top_p", "stop_words")} == {"top_p": 0.9, "stop_words": ["END"]}


def test_each_prompt_has_one_answer(run, triton, files):
    prompts, results = files
    write(prompts, {"prompt": "one"}, {"id": "b", "prompt": "two", "max_tokens": 9, "seed": 4, "temperature": 0.5})

    code, printed = run("--max-tokens", "7")

    assert code == 0, printed
    assert "2 of 2 prompts answered in" in printed
    found = {result["id"]: result for result in read(results)}
    assert found.keys() == {"1", "b"}
    assert {(result["answer"], result["finish_reason"]) for result in found.values()} == {("Paris.", "stop")}
    assert all(0 <= result["first_piece_s"] <= result["seconds"] for result in found.values())
    assert sorted(triton.asked, key=lambda request: request["text_input"]) == [
        {"text_input": "one", "max_tokens": 7, "stream": True, "temperature": 0.0},
        {"text_input": "two", "max_tokens": 9, "stream": True, "temperature": 0.5, "seed": 4},
    ]


def test_a_prompt_may_have_arguments_of_the_chat_template(run, triton, files):
    prompts, _ = files
    write(prompts, {"prompt": "one", "chat_template_kwargs": {"enable_thinking": False}})
    triton.inputs = (*triton.inputs, "chat_template_kwargs")

    assert run()[0] == 0
    assert triton.asked[0]["chat_template_kwargs"] == '{"enable_thinking": false}'


def test_a_killed_batch_goes_on_and_asks_nothing_twice(run, start, triton, files):
    prompts, results = files
    write(prompts, *({"prompt": str(number)} for number in range(9)))
    triton.go_on.clear()
    with start("--concurrency", "2") as killed:
        triton.go_on.set()
        until(lambda: results.exists() and len(results.read_bytes().splitlines()) >= 3)
        triton.go_on.clear()
        killed.send_signal(signal.SIGKILL)
    whole = [line for line in results.read_bytes().split(b"\n")[:-1] if line]
    with results.open("ab") as file:
        file.write(b'{"answer":"cut o')
    before = {json.loads(line)["id"] for line in whole}
    triton.asked.clear()
    triton.go_on.set()

    code, printed = run()

    assert code == 0, printed
    assert f"{len(before)} of 9 prompts have a result already" in printed
    assert sorted(result["id"] for result in read(results)) == [str(number) for number in range(1, 10)]
    assert asked(triton) == sorted(str(number) for number in range(9) if str(number + 1) not in before)


def test_a_batch_that_is_done_asks_nothing(run, triton, files):
    prompts, _ = files
    write(prompts, {"prompt": "one"})
    run()
    triton.asked.clear()

    assert run()[0] == 0
    assert triton.asked == []


def test_failures_are_listed_and_sent_again_by_the_next_run(run, triton, files):
    prompts, results = files
    write(prompts, {"prompt": "one"}, {"prompt": "two"})
    triton.refusal = (400, "the prompt is too long")

    code, printed = run()

    assert code == 1
    assert "1: 127.0.0.1" in printed
    assert printed.count("the prompt is too long") == 2
    assert "0 of 2 prompts answered, 2 failed" in printed
    assert read(results) == []
    triton.refusal = None
    assert run()[0] == 0
    assert len(read(results)) == 2


def test_a_server_that_is_unavailable_for_a_moment_costs_no_prompt(run, triton, files):
    prompts, results = files
    write(prompts, {"prompt": "one"})
    triton.refusal = (503, "the server is draining")
    recovery = threading.Timer(0.3, setattr, (triton, "refusal", None))
    recovery.start()

    assert run()[0] == 0
    recovery.join()
    assert [result["answer"] for result in read(results)] == ["Paris."]


def test_an_answer_that_breaks_off_is_no_answer(run, triton, files):
    prompts, results = files
    write(prompts, {"prompt": "one"})
    event = b'data: {"text_output": "Par"}\n\n'
    triton.raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(event), event)

    code, printed = run("--attempts", "1")

    assert code == 1
    assert "the connection failed" in printed
    assert read(results) == []


def test_prompts_start_evenly_at_the_rate():
    pace = Pace(10)

    assert [pace.wait_s(7.0) for _ in range(3)] == pytest.approx([0, 0.1, 0.2])


def test_prompts_do_not_catch_up_after_a_pause():
    pace = Pace(10)
    pace.wait_s(7.0)

    assert [pace.wait_s(9.0) for _ in range(2)] == pytest.approx([0, 0.1])


def test_prompts_in_flight_at_once_share_the_rate(start, triton, files):
    prompts, results = files
    write(prompts, *({"prompt": str(number)} for number in range(5)))
    triton.go_on.clear()
    with start("--concurrency", "5", "--rate", "0.001") as batch:
        until(lambda: triton.asked)
        triton.go_on.set()
        until(lambda: results.exists() and results.read_bytes().endswith(b"\n"))
        batch.send_signal(signal.SIGINT)

        assert batch.wait(PATIENCE_S) == INTERRUPTED
    assert len(triton.asked) == len(read(results)) == 1


def test_prompts_that_wait_for_the_rate_are_not_sent_when_the_batch_stops(triton, files):
    prompts, results = files
    write(prompts, *({"prompt": str(number)} for number in range(3)))
    servers = ModelServers("demo", api=None, host=f"127.0.0.1:{triton.port}", candidate=False)
    sender = PromptSender("demo", servers, max_tokens=8, attempts=1, timeout_s=30)
    with ResultsFile(results) as file:
        stopped = _Batch(sender, file, read_prompts(prompts), done=0, rate=0.001)
        running = threading.Thread(target=stopped.run, args=(3,))
        running.start()
        until(lambda: results.read_bytes().endswith(b"\n"))
        stopped._stop.set()
        running.join(PATIENCE_S)

    assert (running.is_alive(), len(triton.asked)) == (False, 1)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no prompt"),
        (
            '{"prompt": "a"}\n{"promt": "b"}\n',
            "line 2: prompt: is required; promt: is not a field (did you mean prompt?)",
        ),
        ("What is the capital of France?\n", "expected a prompt.\n  → Write one JSON object per line, such as {"),
        ('{"id": "2", "prompt": "a"}\n{"prompt": "b"}\n', "line 2: the id '2' is that of an earlier prompt"),
    ],
)
def test_a_file_of_prompts_that_is_wrong_is_refused_before_anything_is_sent(run, triton, files, content, words):
    prompts, _ = files
    prompts.write_text(content)

    code, printed = run()

    assert code == 65
    assert words in printed
    assert triton.asked == []


def test_results_of_other_prompts_are_left_as_they_are(run, triton, files):
    prompts, results = files
    write(prompts, {"prompt": "one"})
    run()
    before = results.read_bytes()
    write(prompts, {"prompt": "another one"})

    code, printed = run()

    assert code == 65
    assert "holds the answer to another prompt or other settings under the id '1'" in printed
    assert results.read_bytes() == before


@pytest.mark.parametrize("content", ["my notes", "my notes\n", '{"id": "1"}\n'])
def test_a_file_that_is_no_file_of_results_is_left_as_it_is(run, triton, files, content):
    prompts, results = files
    write(prompts, {"prompt": "one"})
    results.write_text(content)

    code, printed = run()

    assert code == 65
    assert f"{results}, line 1" in printed
    assert results.read_text() == content
    assert triton.asked == []


def test_two_batches_do_not_write_to_one_file(run, files):
    prompts, results = files
    write(prompts, {"prompt": "one"})
    with results.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        code, printed = run()

    assert code == 65
    assert "another process writes results" in printed


def test_without_a_release_the_batch_ends_at_once_with_one_error(slipway, files, monkeypatch):
    prompts, results = files
    write(prompts, *({"prompt": str(number)} for number in range(50)))
    monkeypatch.setenv("SLIPWAY_SITE", str(REPOSITORY / "sites/kind.yaml"))
    monkeypatch.setenv("KUBECONFIG", str(prompts.with_name("no-kubeconfig")))

    code, printed = slipway("batch", "demo", str(prompts), "-o", str(results))

    assert code == 65
    assert printed.count("no-kubeconfig") == 1
