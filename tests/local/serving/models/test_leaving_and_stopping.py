import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.local.serving.triton_server import LAUNCHER, GrpcStream, RunningAnswer, TritonServer
from tests.support.paths import REPOSITORY
from tests.support.processes import is_running
from tests.support.waiting import until

LONG = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 3, "max_tokens": 15_000}
STAYS = {**LONG, "seed": 4, "max_tokens": 14_000}
"""Begins before LONG and has fewer tokens, so it ends long before that one does."""
SHORT = {"text_input": "What is the capital of France?", "max_tokens": 9}


def test_an_http_client_that_disconnects_frees_its_slot(long_server):
    with RunningAnswer(long_server, **STAYS) as other:
        stream = long_server.stream(**LONG)
        next(iter(stream))
        stream.disconnect()

        assert other.outlasts(lambda: asked_briefly(long_server))


def test_a_cancelled_grpc_stream_frees_its_slot(long_server):
    with RunningAnswer(long_server, **STAYS) as other:
        stream = GrpcStream(long_server.grpc_port, **LONG)
        next(iter(stream))
        stream.leave(cancel=True)

        assert other.outlasts(lambda: asked_briefly(long_server))


def test_a_model_whose_end_is_no_token_takes_a_least_number_of_tokens(long_server):
    """OpenVINO GenAI writes to the logits of the end, beyond the last one here, and the process dies."""
    status, body = long_server.generate(**SHORT, min_tokens=3)

    assert (status, body["text_output"]) == (200, "The capital of France is Paris.")


def test_a_stream_under_way_ends_in_order_when_the_server_is_told_to_stop(start_server, make_long_repository):
    server = start_server(make_long_repository(2))
    events = iter(server.stream(**{**LONG, "max_tokens": 300}))
    next(events)
    server.process.terminate()
    rest = list(events)

    assert rest[-1]["finish_reason"] == "length"
    assert server.process.wait(30) == 0
    assert not server.is_ready()


def test_a_server_that_answers_nobody_stops_at_once_however_long_it_may_take(start_server, make_repository):
    server = start_server(make_repository(), environment={"SLIPWAY_DRAIN_S": "600"})
    server.process.terminate()

    assert server.process.wait(30) == 0  # Triton's own limit of 20 s would end it with 1


def test_a_server_whose_engine_fails_tells_its_clients_and_ends(start_server, make_repository):
    repository = make_repository()
    (repository / "demo" / "1" / "model.py").write_text(
        "from generation.service import Service\n"
        "from generation.settings import Limits\n"
        "from tests.fakes.servers.generation_runtime import ByteTokenizer, FakeRuntime\n"
        "class TritonPythonModel:\n"
        "    def initialize(self, args):\n"
        "        self.service = Service(FakeRuntime(fails_at_step=3), ByteTokenizer(), Limits(90, 99, 9), slots=1)\n"
        "    def execute(self, requests):\n"
        "        self.service.accept(requests)\n"
        "    def finalize(self):\n"
        "        self.service.drain()\n"
    )
    server = start_server(repository, first_on_path=REPOSITORY)

    events = list(server.stream(text_input="hello"))

    assert "".join(event.get("text_output", "") for event in events) == "he"
    assert "no memory is left" in events[-1]["error"]
    assert server.process.wait(30) is not None
    assert "the engine failed, the server stops" in server.log.read_text()


def test_a_numpy_that_kills_the_backend_keeps_the_model_from_loading(make_repository, tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    found = subprocess.run(
        [sys.executable, "-c", "import numpy; print(numpy.__version__, numpy.__path__[0])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert int(found[0].split(".")[0]) >= 2
    for name in ("numpy", "numpy.libs"):
        (packages / name).symlink_to(f"{found[1].removesuffix('numpy')}{name}")
    server = TritonServer(make_repository(), tmp_path, first_on_path=packages)
    try:
        assert server.process.wait(60) != 0
    finally:
        server.end()

    assert f"numpy is {found[0]}; Triton's Python backend here needs one below 2" in server.log.read_text()


def test_the_launcher_passes_everything_on_to_the_real_server():
    told = subprocess.run([LAUNCHER, "--no-such-option"], capture_output=True, text=True, check=False)

    assert told.returncode != 0
    assert "--no-such-option" in told.stdout + told.stderr


def test_an_engine_that_is_killed_is_started_again_and_its_stream_goes_on(start_server, make_long_repository):
    server = start_server(make_long_repository(2))
    asked = {"text_input": "Tell me everything.", "temperature": 8.0, "seed": 4, "max_tokens": 300}
    whole = [event["text_output"] for event in server.stream(**asked)]
    stream = server.stream(**asked)
    events = iter(stream)
    texts = [next(events)["text_output"] for _ in range(3)]
    (engine,) = engines_of(server)
    os.kill(engine, signal.SIGKILL)
    last = list(events)

    assert "".join([*texts, *(event["text_output"] for event in last)]) == "".join(whole)
    assert last[-1]["finish_reason"] == "length"
    until(lambda: engines_of(server) not in ([], [engine]))


def test_an_idle_engine_that_is_killed_is_started_again(start_server, make_repository):
    server = start_server(make_repository())
    (engine,) = engines_of(server)
    os.kill(engine, signal.SIGKILL)
    until(lambda: engines_of(server) not in ([], [engine]))

    asked_briefly(server)


def test_a_grammar_at_which_the_engine_fails_fails_its_own_request_only(start_server, make_long_repository):
    repository = make_long_repository(4)
    model = repository / "demo" / "1"
    for file, unchecked in (  # nothing judges the schema before the engine
        (model / "generation" / "json_schema" / "__init__.py", "def grammar_of(text, dialect=None):\n    return text"),
        (model / "grammar_judge.py", "GrammarJudge.check = lambda self, schema: None"),
    ):
        file.write_text(f"{file.read_text()}\n\n{unchecked}\n")
    server = start_server(repository)
    with RunningAnswer(server, text_input="Tell me everything.", temperature=8.0, max_tokens=15_000) as other:
        status, refused = server.generate(text_input="Hi", json_schema="root ::= (")

        assert (status, "the engine cannot take this request" in refused["error"]) == (400, True)
        assert other.outlasts(lambda: asked_briefly(server))


def test_no_engine_is_left_of_a_server_that_is_killed(start_server, make_repository):
    server = start_server(make_repository())
    (engine,) = engines_of(server)
    server.process.kill()
    server.process.wait()

    until(lambda: not is_running(engine))


def asked_briefly(server):
    assert server.generate(**SHORT)[1]["text_output"] == "The capital of France is Paris."


def engines_of(server):
    """The processes of a server's engines, by the file that they run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            files = (folder / "cmdline").read_text().split("\0")
            if any(Path(file).match(f"{server.repository}/*/1/engine_process.py") for file in files):
                found.append(int(folder.name))
    return found
