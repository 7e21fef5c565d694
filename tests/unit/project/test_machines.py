"""What `make demo` says on machines that the locks are not for, before it writes or downloads anything."""

import platform
import sys

import pytest

from local import environments


def said(monkeypatch, capsys, tmp_path):
    """The exit code, and the lines on stderr."""
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "envs")
    monkeypatch.setattr(sys, "argv", ["environments", "local"])
    code = environments.main()
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Darwin", "x86_64"), ("Linux", "aarch64"), ("Windows", "AMD64")]
)
def test_another_machine_gets_one_line_that_says_what_to_use_instead(monkeypatch, capsys, tmp_path, system, machine):
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)

    code, (line,) = said(monkeypatch, capsys, tmp_path)

    assert code == 1
    assert f"found {system} {machine}, expected Linux x86_64" in line
    assert "docker-compose.yaml" in line
    assert "docs/cluster-setup.md" in line
    assert list(tmp_path.iterdir()) == []


def test_an_older_python_gets_one_line_with_the_command_that_names_another(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))

    code, (line,) = said(monkeypatch, capsys, tmp_path)

    assert code == 1
    assert "expected 3.11 or later" in line
    assert "make PYTHON=" in line
    assert list(tmp_path.iterdir()) == []
