"""Records in a wheel which commit it was built from; everything else is in pyproject.toml."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

COMMIT = Path(__file__).resolve().parent / "slipway" / "cli" / "commit.py"


class BuildWithCommit(build_py):
    """Writes slipway/cli/commit.txt, unless the source is no checkout."""

    def run(self) -> None:
        """Copy the modules, and add the record."""
        super().run()
        if commit := runpy.run_path(str(COMMIT))["commit"]():
            Path(self.build_lib, "slipway", "cli", "commit.txt").write_text(commit, encoding="ascii")


setup(cmdclass={"build_py": BuildWithCommit})
