"""An engine in a process of its own, as the openvino model has it, over a fake of its runtime."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Pipe

import pytest
from generation.runtime import Controls, Sampling, TokenLogprob

from tests.fakes.servers.generation_runtime import FakeRuntime
from tests.support.paths import REPOSITORY
from tests.support.processes import is_running
from tests.support.waiting import PATIENCE_S, until
from tests.unit.serving.served_modules import OPENVINO

RUNTIME = """
import os, pathlib, sys, time
sys.path.insert(0, {root!r})
from generation.runtime import Progress, TokenLogprob
from tests.fakes.servers.generation_runtime import FakeRuntime

class Runtime(FakeRuntime):
    max_new_tokens = 7

    def __init__(self, folder):
        super().__init__({{"mortal": "x" * 1000}}, fails_at_step=500 if (folder / "fails").exists() else None)
        self.folder = folder

    def step(self):
        (self.folder / "steps").write_text(str(self.steps + 1))
        if (self.folder / "scores").exists():
            return []
        if (self.folder / "slow").exists():
            time.sleep(0.02)
        prompt = [TokenLogprob(1, None, ((2, -1.0),))]
        return [Progress(each.number, each.tokens, each.finish_reason, "", [TokenLogprob(each.tokens[0], -0.5)], prompt)
                for each in super().step()]

    def cancel(self, number):
        super().cancel(number)
        (self.folder / "cancelled").write_text(str(number))

def load(engine, scheduler, properties, scores_prompts):
    assert (scheduler, properties, scores_prompts) == ({{"cache_size": 1}}, {{"INFERENCE_NUM_THREADS": 1}}, False)
    if not engine.is_dir():
        raise RuntimeError(f"no engine in {{engine}}")
    (engine / "pid").write_text(str(os.getpid()))
    return Runtime(engine)
"""
PARENT = """
import pathlib, sys, time
sys.path[:0] = [{folder!r}, {generation!r}]
import engine_process
engine = engine_process.EngineProcess(pathlib.Path({engine!r}), {{"cache_size": 1}}, {{"INFERENCE_NUM_THREADS": 1}})
print("loaded", flush=True)
time.sleep(60)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """engine_process.py beside a fake of openvino_runtime.py, as a module."""
    shutil.copy(OPENVINO / "engine_process.py", tmp_path)
    (tmp_path / "openvino_runtime.py").write_text(RUNTIME.format(root=str(REPOSITORY)))
    (tmp_path / "engine").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "engine_process", raising=False)
    import engine_process

    yield engine_process
    sys.modules.pop("engine_process")


@pytest.fixture
def start(module, tmp_path):
    engines = []

    def start(folder=tmp_path / "engine"):
        engines.append(module.EngineProcess(folder, {"cache_size": 1}, {"INFERENCE_NUM_THREADS": 1}))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


def answers_of(engine, count):
    """Texts of the requests that end first, by number."""
    texts, ended = {}, {}
    while len(ended) < count:
        for step in engine.step():
            texts[step.number] = texts.get(step.number, "") + bytes(step.tokens).decode()
            assert step.logprobs == [TokenLogprob(step.tokens[0], -0.5)]
            assert step.prompt_logprobs == [TokenLogprob(1, None, ((2, -1.0),))]
            if step.finish_reason:
                ended[step.number] = texts[step.number], step.finish_reason
    return ended


def test_requests_are_answered_as_by_the_runtime_itself(start):
    engine = start()
    engine.add(0, b"Hello", Sampling(100))
    engine.add(1, b"mortal", Sampling(3, controls=Controls(top_p=0.5)))

    assert engine.max_new_tokens == 7
    assert answers_of(engine, 2) == {0: ("Hello", "stop"), 1: ("xxx", "length")}
    assert not engine.has_work()
    assert engine.step() == []


def test_an_engine_that_reads_a_prompt_has_not_stopped(start, module, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STALL_S", PATIENCE_S)
    (tmp_path / "engine" / "scores").touch()
    engine = start()
    engine.add(0, b"Hello", Sampling(100))

    assert [engine.step() for _ in range(2 * module.AHEAD)] == [[]] * 2 * module.AHEAD
    (tmp_path / "engine" / "scores").unlink()
    assert answers_of(engine, 1) == {0: ("Hello", "stop")}


def test_a_cancelled_request_is_freed_and_the_next_one_answered(start, tmp_path):
    engine = start()
    engine.add(0, b"mortal", Sampling(1000))
    engine.step()
    engine.cancel(0)
    engine.add(1, b"next", Sampling(100))

    answers = {}
    while not answers:
        answers = {step.number: step.finish_reason for step in engine.step() if step.number == 1 and step.finish_reason}
    assert answers == {1: "stop"}
    assert (tmp_path / "engine" / "cancelled").read_text() == "0"


def test_the_engine_does_not_run_far_ahead_of_whoever_reads(start, module, tmp_path):
    steps = tmp_path / "engine" / "steps"
    engine = start()
    engine.add(0, b"mortal", Sampling(1000))
    until(lambda: steps.exists() and steps.read_text() == str(module.AHEAD))
    time.sleep(0.2)

    assert steps.read_text() == str(module.AHEAD)
    assert answers_of(engine, 1)[0] == ("x" * 1000, "stop")


def test_long_prompts_of_many_requests_do_not_block_either_side(start):
    engine, prompt = start(), bytes(range(97, 123)) * 4000
    for number in range(8):
        engine.add(number, prompt, Sampling(40))

    assert {text for text, _ in answers_of(engine, 8).values()} == {prompt[:40].decode()}


def test_short_steps_share_a_message_which_does_not_wait_for_the_prompt_of_a_new_request(module, monkeypatch):
    ours, its = Pipe()
    prompt_is_done = threading.Event()

    class Runtime(FakeRuntime):
        def step(self):
            if len(self.left) > 1:
                assert prompt_is_done.wait(PATIENCE_S)
            if self.steps == 3:
                ours.send(("add", 1, b"a long prompt", Sampling(1)))
            return super().step()

    def serve():
        with contextlib.suppress(EOFError, ConnectionError):
            module.serve(its, Runtime({"mortal": "x" * 1000}))

    monkeypatch.setattr(module, "PAUSE_S", 3600)
    thread = threading.Thread(target=serve)
    thread.start()
    ours.send(("add", 0, b"mortal", Sampling(1000)))
    messages = [ours.recv() for _ in range(2) if ours.poll(PATIENCE_S)]
    prompt_is_done.set()
    ours.close()
    thread.join(PATIENCE_S)

    assert [(failed, made) for failed, (made, _) in messages] == [(False, 1), (False, 3)]


def test_an_engine_that_cannot_be_loaded_says_why(start, module, tmp_path):
    with pytest.raises(module.EngineError, match=r"RuntimeError: no engine in .*/nowhere"):
        start(tmp_path / "nowhere")


def test_an_engine_that_fails_ends_the_service(start, module, tmp_path):
    (tmp_path / "engine" / "fails").touch()
    engine = start()
    engine.add(0, b"mortal", Sampling(1000))

    with pytest.raises(module.EngineError, match="RuntimeError: no memory is left"):
        answers_of(engine, 1)


def test_a_killed_engine_is_noticed_at_once(start, module, tmp_path):
    (tmp_path / "engine" / "slow").touch()
    engine = start()
    engine.add(0, b"mortal", Sampling(1000))
    os.kill(int((tmp_path / "engine" / "pid").read_text()), signal.SIGKILL)

    with pytest.raises(module.EngineError, match="signal 9"):
        answers_of(engine, 1)


def test_an_idle_server_does_not_wait_for_a_request_to_notice_it(start, module, tmp_path):
    engine, noticed = start(), threading.Event()
    engine.watch(noticed.set)
    assert engine.step() == []
    os.kill(int((tmp_path / "engine" / "pid").read_text()), signal.SIGKILL)

    assert noticed.wait(PATIENCE_S)
    with pytest.raises(module.EngineError, match="signal 9"):
        engine.step()


def test_closing_is_no_failure(start):
    engine, noticed = start(), threading.Event()
    engine.watch(noticed.set)
    engine.close()

    assert not noticed.wait(0.2)


def test_signals_that_a_whole_group_gets_do_not_end_the_engine_before_its_server(start, tmp_path):
    engine, pid = start(), int((tmp_path / "engine" / "pid").read_text())
    for each in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid, each)
    engine.add(0, b"still here", Sampling(100))

    assert answers_of(engine, 1)[0] == ("still here", "stop")
    engine.close()
    assert not is_running(pid)


def test_the_engine_ends_with_its_server_however_that_ends(module, tmp_path):
    parts = {"folder": str(tmp_path), "generation": str(OPENVINO), "engine": str(tmp_path / "engine")}
    code = PARENT.format(**parts)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout.readline() == "loaded\n"
        pid = int((tmp_path / "engine" / "pid").read_text())
        server.kill()
    until(lambda: not is_running(pid))
