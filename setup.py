"""What pyproject.toml cannot say: which folders are the packages of the wheel."""

from setuptools import find_packages, setup

COMMAND = find_packages(
    include=["cli", "cli.*", "tasks", "tasks.adapters*", "tasks.contracts*"], exclude=["cli.installed"]
)

setup(packages=["slipway", *(f"slipway.lib.{name}" for name in COMMAND)])
