"""`python3 -m tests`: which parts a name means, and what runs beside what."""

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.__main__ import once_more
from tests.runner import durations, jobs, reaper, schedule
from tests.runner.jobs import TESTS_FAILED, Job
from tests.runner.parts import PARTS, TIERS, Part, UnknownPartError, chosen
from tests.runner.temporary import Folders, folders
from tests.support.paths import REPOSITORY
from tests.support.waiting import until

ROOM = schedule.Room(cpus=2, memory_mb=1000)
BURN = "import time\nwhile time.process_time() < 0.5: pass"


def named(*names):
    return {part.name: arguments for part, arguments in chosen(list(names)).items()}


def test_every_file_of_tests_is_run_by_one_part():
    files = [*(REPOSITORY / "tests").rglob("test_*.py"), *(REPOSITORY / "local/cluster/tests").glob("test_*.py")]
    paths = {file.relative_to(REPOSITORY).as_posix() for file in files}

    assert {path for path in paths if len(named(path)) != 1} == set()
    assert [path for part in PARTS for path in part.own_paths if not (REPOSITORY / path).exists()] == []
    assert set(named()) == {part.name for part in PARTS}


def test_a_folder_that_is_named_runs_alone_with_its_own_environments():
    (part,) = chosen(["tests/local/hub"])

    assert named("tests/local/hub") == named("local/hub") == {"local/hub": ["tests/local/hub"]}
    assert set(part.environments) == {"tasks", "dev", "local"}


@pytest.mark.parametrize("name", [*TIERS, "tests/unit", "tests/local/", "local/chain"])
def test_a_tier_has_every_part_within_its_folder(name):
    folder = "local/cluster/tests" if name == "cluster" else f"tests/{name.removeprefix('tests/').rstrip('/')}"

    within = {part.name for part in PARTS if all(f"{path}/".startswith(f"{folder}/") for path in part.own_paths)}
    assert set(named(name)) == within


def test_a_part_leaves_out_the_parts_within_it():
    outer, inner = Part("unit", 1), Part("first", 1, paths=("tests/unit/cli",))

    assert chosen(["unit"], (outer, inner)) == {
        outer: ["tests/unit", "--ignore=tests/unit/cli"],
        inner: ["tests/unit/cli"],
    }
    assert list(chosen(["tests/unit/cli/test_ask.py"], (outer, inner))) == [inner]


def test_the_id_of_a_test_goes_to_pytest_as_it_is():
    test = "tests/unit/project/test_faults.py::test_something[a]"

    (arguments,) = named(test).values()
    assert arguments[0] == test


@pytest.mark.parametrize("name", ["none-such", "tests/none-such", "docs", "tests/gpu"])
def test_a_name_without_tests_is_refused(name):
    with pytest.raises(UnknownPartError, match="unit, contracts, dags, cluster, local"):
        chosen([name])


@pytest.fixture
def job(tmp_path):
    def make(name, command="", *, seconds=1.0, cpus=1.0, memory_mb=1, needs=()):
        class Shell(Job):
            log = tmp_path / f"{name}.log"

            def command(self):
                return ["sh", "-c", command]

        return Shell(name, seconds, cpus, memory_mb, needs)

    return make


def run(*jobs, room=ROOM):
    ended = []
    schedule.run(list(jobs), room, ended=ended.append)
    return [job.name for job in ended]


def test_the_job_on_which_the_longest_chain_waits_begins_first(job):
    jobs = [job("short", seconds=5), job("tests", seconds=9, needs=("made",)), job("made", seconds=1)]

    assert [each.name for each in schedule.by_urgency(jobs)] == ["made", "tests", "short"]
    assert run(*jobs, room=schedule.Room(1, 1000)) == ["made", "tests", "short"]


def test_a_job_begins_when_what_it_needs_has_ended(job, tmp_path):
    made = job("made", f"sleep 0.2; touch {tmp_path}/made")
    tests = job("tests", f"test -e {tmp_path}/made", needs=("made",))

    run(tests, made)

    assert (made.code, tests.code) == (0, 0)
    assert tests.ready_at == made.ended_at


def test_what_needs_a_job_that_failed_is_not_run_and_everything_else_is(job, tmp_path):
    broken, other = job("broken", "exit 3"), job("other")
    tests = job("tests", f"touch {tmp_path}/began", needs=("broken",))

    assert set(run(broken, tests, other)) == {"broken", "tests", "other"}
    assert (broken.code, tests.code, other.code) == (3, 1, 0)
    assert not (tmp_path / "began").exists()


def test_jobs_that_wait_run_beside_each_other_and_jobs_that_compute_do_not(job):
    waits, computes = job("waits", cpus=0.4), job("computes", cpus=1.0)

    assert ROOM.holds(waits, [computes, waits])
    assert not ROOM.holds(computes, [computes, waits])
    assert not ROOM.holds(job("large", cpus=0.1, memory_mb=999), [job("second", memory_mb=2)])
    assert ROOM.holds(job("larger than the machine", cpus=9, memory_mb=9999), [])


def test_tests_can_be_interrupted_where_the_shell_that_started_them_ignores_interrupts(job):
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        interrupted = job("interrupted", "kill -INT $$; sleep 0.1")
        run(interrupted)
    finally:
        signal.signal(signal.SIGINT, ignored)

    assert interrupted.code == signal.SIGINT


def test_the_cpu_seconds_of_a_process_that_left_its_parent_count(job, tmp_path):
    burns = f"{sys.executable} -c '{BURN}'; touch {tmp_path}/burnt"
    orphan = job("orphan", f"(( {burns} ) & ); until [ -e {tmp_path}/burnt ]; do sleep 0.05; done; sleep 0.1")

    run(orphan)

    assert orphan.code == 0
    assert orphan.cpu_s >= 0.5


def test_what_tests_leave_behind_is_named_and_ended(job, tmp_path):
    pid, program = tmp_path / "pid", tmp_path / "program"
    program.write_text(
        "import os, pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\ntime.sleep(600)"
    )
    leaves = job("leaves", f"({sys.executable} {program} &); until [ -s {pid} ]; do sleep 0.05; done; exit 3")

    run(leaves)

    assert leaves.code == 3
    named = [line for line in leaves.log.read_text().splitlines() if str(program) in line]
    told = dict.fromkeys(line.partition(" sent")[0] for line in named)  # SIGKILL again until it has ended
    assert list(told) == [f"tests: left behind, {number}" for number in ("SIGTERM", "SIGKILL")]
    assert not Path("/proc", pid.read_text()).exists()


def test_tests_whose_runner_was_killed_are_interrupted_as_on_a_terminal(tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    shell = f"trap 'touch {ended}; exit' INT; touch {begun}; until [ -e {ended} ]; do sleep 0.05; done"
    command = f"[{sys.executable!r}, '-m', 'tests.runner.reaper', str(os.getpid()), 'sh', '-c', {shell!r}]"
    runner = f"import os, subprocess; subprocess.run({command})"
    process = subprocess.Popen([sys.executable, "-c", runner], cwd=REPOSITORY)
    until(begun.exists)

    process.kill()
    process.wait()

    until(ended.exists)


def test_who_interrupts_the_runner_interrupts_its_parts_and_what_they_started(job, tmp_path):
    begun, ended = tmp_path / "begun", [tmp_path / name for name in ("inner", "outer")]
    session, waits = f"cut -d' ' -f6 /proc/$$/stat > {begun}", "while :; do sleep 0.05; done"
    inner, outer = (f"trap 'touch {file}; exit' INT" for file in ended)
    asleep = job("asleep", f'{outer}; sh -c "{inner}; {session.replace("$", chr(92) + "$")}; {waits}"; {waits}')

    def interrupt():
        until(lambda: begun.exists() and begun.read_text().endswith("\n"))
        os.kill(os.getpid(), signal.SIGINT)

    person = threading.Thread(target=interrupt)
    person.start()

    with pytest.raises(KeyboardInterrupt):
        run(asleep)

    person.join()
    assert [file.exists() for file in ended] == [True, True]
    assert int(begun.read_text()) != os.getsid(0)


def test_processes_of_tests_have_longer_time_slices_than_others(job):
    told, release = Path("/proc/self/sched"), [int(number) for number in re.findall(r"\d+", os.uname().release)[:2]]
    if release < [6, 12] or os.uname().machine not in reaper.SCHED_SETATTR:
        pytest.skip("processes have no time slices of their own here")
    if not told.exists() or "se.slice" not in told.read_text():
        pytest.skip("this kernel does not tell the time slice of a process")
    sliced = job("sliced", f"grep se.slice {told}")

    run(sliced)

    assert int(sliced.log.read_text().split()[-1]) == reaper.TIME_SLICE_MS * 1_000_000


def filled(folder):
    """A folder with one inside that nobody may enter."""
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "file").touch()
    (folder / "inner").chmod(0)
    return folder


@pytest.fixture
def places(tmp_path):
    """Two folders in place of the machine's disk and memory."""
    found = tmp_path / "disk", tmp_path / "memory"
    for place in found:
        place.mkdir()
    return found


def test_a_run_removes_its_folders_and_those_of_runs_that_were_killed(places):
    for place in places:
        filled(place / "slipway-tests-killed")
        filled(place / "other")

    with folders(*places, has_room=lambda _: True) as made:
        # a new folder might be one that its run is about to lock
        assert all((place / "slipway-tests-killed").exists() for place in places)
        with folders(*places, has_room=lambda _: False, new_s=0) as on_disk:
            assert {on_disk.disk.parent, on_disk.memory.parent} == {places[0]}
        filled(made.memory / "part")
        assert [{path.name for path in place.iterdir()} for place in places] == [
            {made.disk.name, "other"},
            {made.memory.name, "other"},
        ]

    assert [[path.name for path in place.iterdir()] for place in places] == [["other"], ["other"]]


def test_the_tests_of_a_killed_run_keep_its_folders_until_they_have_ended(places, tmp_path):
    ended = tmp_path / "ended"
    command = f"trap '' INT; touch {tmp_path}/begun; until [ -e {ended} ]; do sleep 0.05; done"
    runner = f"""
import pathlib
from tests.runner.jobs import Job
from tests.runner.temporary import folders
class Shell(Job):
    log = pathlib.Path({str(tmp_path / "log")!r})
    def command(self): return ["sh", "-c", {command!r}]
with folders(*map(pathlib.Path, {[*map(str, places)]!r}), has_room=lambda _: True) as made:
    Shell("shell", 1, 1, 1, (), locks=made.locks).run()
"""
    process = subprocess.Popen([sys.executable, "-c", runner], cwd=REPOSITORY)
    until((tmp_path / "begun").exists)

    def is_swept():
        with folders(*places, has_room=lambda _: False, new_s=0):
            return not any(places[1].iterdir())

    process.kill()
    process.wait()
    assert not is_swept()
    ended.touch()
    until(is_swept)


def test_tests_write_to_disk_where_there_is_no_memory(places, tmp_path):
    with folders(places[0], tmp_path / "absent") as made:
        assert made.memory.parent == places[0]


def test_parts_that_start_a_cluster_write_to_disk(tmp_path):
    places = Folders(tmp_path / "disk", tmp_path / "memory")
    starts = re.compile(r"ClusterProces[s]|own_stac[k]|stand_in_cluste[r]|\"local\.cluste[r]\"")
    on_disk = {part.name for part in PARTS if jobs.Testing.of(part, [], places).folder == places.disk}

    files = (REPOSITORY / "tests").rglob("*.py")
    found = {file.parent.relative_to(REPOSITORY).as_posix() for file in files if starts.search(file.read_text())}
    owners = {
        part.name for folder in found - {"tests/local", "tests/support"} for part in chosen([folder]) if part in PARTS
    }

    assert owners - on_disk == set()
    assert {"dags", "local/chain", "local/packaging"} <= owners


def test_pytest_and_services_write_into_the_folder_of_the_run(tmp_path):
    part = probe(
        tmp_path,
        f"import tempfile\ndef test_a(tmp_path): assert tempfile.gettempdir() == {str(tmp_path)!r} and "
        f"tmp_path.is_relative_to({str(tmp_path)!r})\n",
    )

    assert part.is_done, part.log.read_text()


def test_pytests_folder_is_gone_when_its_part_has_ended_and_others_stay(tmp_path):
    note = tmp_path / "where"
    others = tmp_path / "others"
    others.mkdir()

    part = probe(tmp_path, f"def test_a(tmp_path): Path({str(note)!r}).write_text(str(tmp_path))\n")

    assert part.is_done, part.log.read_text()
    assert Path(note.read_text()).is_relative_to(tmp_path)
    assert (Path(note.read_text()).parent.exists(), others.exists()) == (False, True)


@pytest.mark.parametrize(
    ("after", "share"),
    [
        ("cpu 10 0 0 90 0 0 0 0 0 0", 0.1),
        ("cpu 20 10 10 0 40 5 5 10 0 0", 0.6),
        ("cpu 0 0 0 50 0 0 0 50", 0.5),
        ("cpu 0 0 0 0 0 0 0 0", 0),
    ],
)
def test_cpus_are_busy_but_for_idle_and_iowait(after, share):
    assert schedule.busy_share("cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 1 1 1 1", after) == share


def probe(tmp_path, text):
    """A part with the tests in `text`, which has run. They can ask whether they run `again`."""
    file, seen = tmp_path / "test_probe.py", tmp_path / "seen"
    begin = (
        f"from pathlib import Path\nimport pytest\nagain = Path({str(seen)!r}).exists()\nPath({str(seen)!r}).touch()\n"
    )
    file.write_text(begin + text)
    without_imports = ["-p", "no:hypothesispytest", "-p", "no:anyio"]  # half of what a probe takes
    part = jobs.Testing.of(
        Part(f"probe {tmp_path.name}", 1), [str(file), *without_imports], Folders(tmp_path, tmp_path)
    )
    part.report.unlink(missing_ok=True)
    schedule.run([dataclasses.replace(part, needs=())], ROOM, ended=lambda job: setattr(part, "code", job.code))
    return part


@pytest.mark.parametrize(
    ("also", "code", "counted"), [("", 0, (2, 0)), ("def test_c(): assert False", TESTS_FAILED, (2, 1))]
)
def test_a_test_that_fails_once_is_unstable_and_one_that_fails_alone_too_has_failed(
    tmp_path, capsys, also, code, counted
):
    part = probe(tmp_path, f"def test_a(): pass\ndef test_b(): assert again\n{also}\n")

    total = durations.counts(part.report) + once_more([part])

    assert (part.code, total.passed, total.failed) == (code, *counted)
    (unstable,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("tests: unstable"))
    assert unstable.endswith("test_probe::test_b")


@pytest.mark.parametrize(
    "text",
    [
        "def test_a():\n    if again: pytest.skip('no place')\n    assert False\n",
        "if not again:\n    def test_a(): assert False\n",
        "@pytest.fixture\ndef f():\n    yield\n    assert False\ndef test_a(f): assert again\n",
    ],
    ids=["skipped", "gone", "failed in its teardown"],
)
def test_a_failed_test_that_does_not_pass_alone_has_failed(tmp_path, capsys, text):
    part = probe(tmp_path, text)

    assert once_more([part]) == durations.Counts()
    assert part.code == TESTS_FAILED
    assert "unstable" not in capsys.readouterr().out


def test_a_part_that_could_not_run_is_not_run_once_more(tmp_path, capsys):
    part = jobs.Testing.of(Part(f"probe {tmp_path.name}", 1), ["tests/none-such"], Folders(tmp_path, tmp_path))
    part.code = TESTS_FAILED

    assert once_more([part]) == durations.Counts()
    assert (part.code, capsys.readouterr().out) == (TESTS_FAILED, "")
