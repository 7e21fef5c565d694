"""Tests of the embedded cluster, each against a server in a process of its own. They import nothing of the project."""
