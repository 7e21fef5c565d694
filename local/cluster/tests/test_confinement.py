"""Both ways to confine a process hold, for root and for an ordinary user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from ..node import confinement
from ..node.confinement import LANDLOCK, NAMESPACES, View

NOBODY = 65534
SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")
ORDINARY = pytest.param(
    NOBODY, id="ordinary user", marks=pytest.mark.skipif(os.geteuid() != 0 or not SYSTEM_PYTHON, reason="needs root")
)


@pytest.fixture
def folder():
    """Readable by everybody, unlike tmp_path, and below the /tmp that views cover."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        made = Path(name)
        shutil.copy(confinement.__file__, made / "confinement.py")
        for each in (made, made / "state", made / "state" / "volume", made / "state" / "tmp"):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        yield made


@pytest.fixture(params=[pytest.param(None, id="own user"), ORDINARY])
def shell(request, folder):
    """Runs a script in a view; its exit code and output."""

    def run(view, script):
        identity = {"user": request.param, "group": request.param, "extra_groups": []} if request.param else {}
        done = subprocess.run(
            [SYSTEM_PYTHON, "-I", "-S", folder / "confinement.py", view.to_json(), "/bin/sh", "-c", script],
            cwd=folder / "state",
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            **identity,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def view(folder, method):
    state = folder / "state"
    return View(
        method,
        writable=(str(state / "volume"), str(state / "tmp")),
        # Landlock can only share the machine's /tmp, and this folder is inside it
        mounts=((str(state / "tmp"), "/tmp", True),) if method == NAMESPACES else (),
        kept=(str(state),),
    )


@pytest.mark.parametrize("method", [NAMESPACES, LANDLOCK])
def test_only_what_is_writable_takes_writes(shell, folder, method):
    state = folder / "state"

    code, output = shell(view(folder, method), f"touch {state}/volume/file && touch {state}/other")

    if "unshare: Operation not permitted" in output or "landlock: " in output:
        pytest.skip(f"this machine does not permit {method}")
    assert code != 0, output
    assert (state / "volume" / "file").exists()
    assert not (state / "other").exists()


@pytest.mark.parametrize("method", [NAMESPACES, LANDLOCK])
def test_files_cannot_be_changed_renamed_or_removed_outside(shell, folder, method):
    state = folder / "state"
    (state / "kept").write_text("as it was")
    (state / "kept").chmod(0o666)
    attempts = [
        f"echo new > {state}/kept",
        f"rm {state}/kept",
        f"mv {state}/kept {state}/volume/",
        f"mkdir {state}/new",
    ]

    _, output = shell(view(folder, method), "; ".join(f"({attempt}) && echo succeeded" for attempt in attempts))

    assert "succeeded" not in output
    assert (state / "kept").read_text() == "as it was"


def test_a_namespace_puts_the_pods_tmp_at_its_real_path(shell, folder):
    code, output = shell(view(folder, NAMESPACES), "touch /tmp/test-private && ls /tmp")
    if "unshare: Operation not permitted" in output:
        pytest.skip("this machine does not permit namespaces")

    assert code == 0, output
    assert "test-private" in output.split()
    assert (folder / "state" / "tmp" / "test-private").exists()
    assert not Path("/tmp/test-private").exists()


def test_a_view_survives_its_way_to_the_shim(folder):
    whole = view(folder, NAMESPACES)

    assert View.from_json(whole.to_json()).to_json() == whole.to_json()


def test_a_command_that_does_not_exist_says_so(folder):
    command = [*confinement.command_in(View(confinement.NONE)), "no-such-command"]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, "no-such-command" in done.stderr) == (126, True)
