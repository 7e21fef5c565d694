"""Building environments side by side, and choosing the Python to build them with; a program takes the place of uv."""

import ctypes
import os
import platform
import shutil
import signal
import sys
import sysconfig
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from local import environments
from local.environments import SetupError, build, wait_for
from tests.support.paths import REPOSITORY

UV = """\
    #!/usr/bin/env python3
    import json, pathlib, sys, time
    if sys.argv[1:3] == ["python", "list"]:
        assert sys.argv[-1] == "cpython@3.11"
        print(json.dumps([{"path": str(path)} for path in sorted(pathlib.Path(__file__).parent.glob("found/*"))]))
    elif sys.argv[1:3] == ["python", "install"]:
        target = pathlib.Path(sys.argv[sys.argv.index("--install-dir") + 1], "cpython-3.11.9-linux", "bin")
        target.mkdir(parents=True)
        pathlib.Path(__file__).with_name("offered").rename(target / "python3.11")
    elif sys.argv[1] == "venv":
        target = pathlib.Path(sys.argv[-1])
        (target / "bin").mkdir(parents=True)
        (target / "bin" / "python").symlink_to(sys.executable)
        for package in ("yaml", "torch"):
            folder = target / "lib" / "site-packages" / package
            folder.mkdir(parents=True)
            (folder / "__init__.py").touch()
            (folder / "of_python_2.py").write_text("print 1")
    elif sys.argv[-1].endswith("front.lock"):
        sys.exit("no such package")
    elif sys.argv[-1].endswith("airflow.lock"):
        time.sleep(0.5)
    """


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    made = tmp_path / "envs"
    made.mkdir()
    monkeypatch.setattr(environments, "ENVIRONMENTS", made)
    return made


@pytest.fixture
def uv(tmp_path):
    program = tmp_path / "uv"
    program.write_text(textwrap.dedent(UV).replace("/usr/bin/env python3", sys.executable, 1))
    program.chmod(0o700)
    return program


def test_two_commands_at_once_install_uv_once(folder, monkeypatch):
    installs = []

    def run(command, remedy):
        installs.append(command)
        time.sleep(0.1)  # for the other one to come by
        if "install" in command:
            (folder / "uv" / "bin").mkdir(parents=True)
            (folder / "uv" / "bin" / "uv").touch()

    monkeypatch.setattr(environments, "_run", run)
    with ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda _: environments.installer(), range(2)))

    assert found == [folder / "uv" / "bin" / "uv"] * 2
    assert ["install" in command for command in installs] == [False, True]


@pytest.mark.parametrize("name", ["tasks", "dev"])
def test_no_script_of_an_environment_says_where_it_was_made(name):
    folder = REPOSITORY / ".slipway" / "envs" / name / "bin"
    scripts = {
        file.name: text for file in folder.iterdir() if file.is_file() and (text := file.read_bytes())[:2] == b"#!"
    }

    assert scripts
    assert [name for name, text in scripts.items() if b".slipway/envs" in text] == []


def test_an_environment_whose_python_is_gone_is_built_again(uv, folder):
    assert build(uv, ["local"]) == 0
    (folder / "local" / "bin" / "python").unlink()

    assert build(uv, ["local"]) == 0
    assert (folder / "local" / "bin" / "python").exists()


def waiting_for(name, folder, tmp_path):
    """Arguments of a Python that waits for an environment, and writes whether it is there, or why it is not."""
    code = f"""\
        import pathlib
        from local import environments
        environments.ENVIRONMENTS = folder = pathlib.Path({str(folder)!r})
        try:
            environments.wait_for({name!r})
            said = str((folder / {name!r} / "made-from").exists())
        except environments.SetupError as error:
            said = str(error)
        pathlib.Path({str(tmp_path / "said")!r}).write_text(said)
        """
    return ["-c", textwrap.dedent(code)]


def test_what_runs_meanwhile_waits_for_an_environment_that_it_needs(uv, folder, tmp_path):
    assert build(uv, ["local", "airflow"], waiting_for("airflow", folder, tmp_path)) == 0

    assert (tmp_path / "said").read_text() == "True"


def test_a_failed_environment_ends_both_with_its_error(uv, folder, tmp_path):
    with pytest.raises(SetupError, match=r"cannot install front\.lock"):
        build(uv, ["local", "front"], waiting_for("front", folder, tmp_path))

    assert (tmp_path / "said").read_text().startswith("environment front: cannot install front.lock")


def test_the_exit_code_of_what_ran_meanwhile_is_passed_on(uv):
    assert build(uv, ["local", "airflow"], ["-c", "raise SystemExit(7)"]) == 7


def test_an_environment_that_is_built_now_makes_the_last_error_history(uv, folder):
    with pytest.raises(SetupError):
        build(uv, ["front"])
    uv.write_text(uv.read_text().replace("front.lock", "other.lock"))

    assert build(uv, ["front"]) == 0
    wait_for("front")


def test_two_commands_build_an_environment_once(uv, folder, capfd):
    both = [threading.Thread(target=build, args=(uv, ["airflow"])) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()

    assert capfd.readouterr().out.count("building airflow") == 1


def compiled(folder):
    return sorted(path.parent.parent.name for path in folder.rglob("*.pyc"))


def test_toolkits_of_an_environment_of_pods_are_compiled_in_the_end(uv, folder, tmp_path):
    assert build(uv, ["local", "harness"], waiting_for("harness", folder, tmp_path)) == 0

    assert (tmp_path / "said").read_text() == "True"
    assert compiled(folder / "harness") == ["torch", "yaml"]


@pytest.fixture
def ended_while_compiling(tmp_path, monkeypatch):
    """Let every compilation from now on be ended by a signal, once it has begun."""

    def end(number):
        hook = tmp_path / "hook" / "sitecustomize.py"
        hook.parent.mkdir()
        hook.write_text(
            f"import compileall, os\ncompileall.compile_dir = lambda *_, **__: os.kill(os.getpid(), {int(number)})\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(hook.parent))

    return end


def test_an_environment_whose_compilation_is_interrupted_is_not_finished(uv, folder, ended_while_compiling):
    ended_while_compiling(signal.SIGINT)

    with pytest.raises(SetupError, match="cannot compile"):
        build(uv, ["harness"])

    assert not (folder / "harness" / "made-from").exists()


@pytest.mark.parametrize(("number", "told"), [(signal.SIGINT, False), (signal.SIGKILL, True)])
def test_toolkits_are_not_taken_for_compiled_when_that_was_ended(
    number, told, uv, folder, ended_while_compiling, capfd
):
    build(uv, ["harness"])
    (folder / "harness" / "compiled").unlink()
    ended_while_compiling(number)

    assert build(uv, ["harness"]) == 0

    assert not (folder / "harness" / "compiled").exists()
    assert ("harness is not compiled as a whole" in capfd.readouterr().err) is told


def test_toolkits_that_were_not_compiled_to_the_end_are_compiled_by_the_next_command(uv, folder):
    build(uv, ["harness"])
    (folder / "harness" / "compiled").unlink()
    shutil.rmtree(folder / "harness" / "lib" / "site-packages" / "torch" / "__pycache__")

    build(uv, ["harness"])

    assert compiled(folder / "harness") == ["torch", "yaml"]


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Have programs answer as Pythons do: `own` runs this, `distribution` is that of the machine, uv knows those in
    `found` and downloads what is `offered`."""
    environments.interpreter.cache_clear()
    monkeypatch.delenv("PYTHON", raising=False)
    monkeypatch.setattr(environments, "DISTRIBUTION", tmp_path / "distribution")
    monkeypatch.setattr(environments, "DOWNLOADED", tmp_path / "downloaded")

    def put(name, told):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{told}\n")
        program.chmod(0o700)
        if name == "own":
            monkeypatch.setattr(sys, "executable", str(program))
        return str(program)

    yield put
    environments.interpreter.cache_clear()


OPTIMIZED, PLAIN = "printf '11 3.11.2 (main)'", "printf '10 3.11.7 (main)'"
WITHOUT_LIBPYTHON, BROKEN = "printf '01 3.11.3 (main)'", "exit 127"


def test_an_optimized_python_that_runs_this_is_taken_and_no_other_is_looked_for(uv, python):
    own = python("own", OPTIMIZED)
    uv.unlink()

    assert environments.interpreter(uv) == (own, "3.11.2 (main)")


def test_the_distributions_optimized_python_is_taken_without_asking_uv(uv, python):
    python("own", PLAIN)
    distribution = python("distribution", OPTIMIZED)
    uv.unlink()

    assert environments.interpreter(uv) == (distribution, "3.11.2 (main)")


def test_an_optimized_python_of_the_machine_is_taken_before_another_one_that_runs_this(uv, python):
    python("own", PLAIN)
    python("distribution", WITHOUT_LIBPYTHON)
    python("found/1", BROKEN)
    python("found/2", PLAIN)
    optimized = python("found/3", OPTIMIZED)

    assert environments.interpreter(uv) == (optimized, "3.11.2 (main)")


def test_a_python_that_lacks_something_is_taken_after_every_other_one(uv, python, monkeypatch):
    monkeypatch.setattr(platform, "python_version", lambda: "3.13.0")
    python("distribution", WITHOUT_LIBPYTHON)
    plain = python("found/1", PLAIN)

    assert environments.interpreter(uv) == (plain, "3.11.7 (main)")


def test_without_an_optimized_python_the_one_that_runs_this_is_taken(uv, python):
    own = python("own", PLAIN)
    python("found/1", PLAIN)

    assert environments.interpreter(uv) == (own, "3.11.7 (main)")


def test_a_python_that_make_was_told_is_taken_as_it_is(uv, python, monkeypatch):
    own = python("own", PLAIN)
    python("distribution", OPTIMIZED)
    monkeypatch.setenv("PYTHON", "python3.11")

    assert environments.interpreter(uv) == (own, sys.version)


def test_a_machine_without_a_python_for_the_locks_gets_one(uv, python, monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "python_version", lambda: "3.13.0")
    python("offered", OPTIMIZED)

    path, version = environments.interpreter(uv)

    assert (path, version) == (str(tmp_path / "downloaded/cpython-3.11.9-linux/bin/python3.11"), "3.11.2 (main)")


def test_a_downloaded_python_that_does_not_run_is_named(uv, python, monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "python_version", lambda: "3.13.0")
    python("offered", BROKEN)

    with pytest.raises(SetupError, match=f"the one in {tmp_path / 'downloaded'} does not run"):
        environments.interpreter(uv)


def absent(name):
    raise OSError(name)


@pytest.mark.parametrize(
    ("prefix", "options", "lacks", "rank"),
    [
        ("/usr", "'--enable-shared'", None, "11"),
        ("/opt/python", "'--enable-optimizations' '--with-lto'", None, "11"),
        ("/opt/python", "'--enable-shared'", None, "10"),
        ("/opt/python", None, None, "10"),
        ("/usr", "", "sqlite3", "01"),
        ("/usr", "", "libpython", "01"),
    ],
)
def test_a_python_says_of_itself_what_it_is(prefix, options, lacks, rank, tmp_path, monkeypatch, capsys):
    variables = {"CONFIG_ARGS": options, "LIBDIR": str(tmp_path)}
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(sysconfig, "get_config_var", variables.get)
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    monkeypatch.setattr(ctypes, "CDLL", absent if lacks == "libpython" else lambda name: None)
    if lacks == "sqlite3":
        monkeypatch.setitem(sys.modules, "sqlite3", None)

    exec(environments.PROBE, {})  # noqa: S102 - as the Python that is asked does

    assert capsys.readouterr().out == f"{rank} {sys.version}"
