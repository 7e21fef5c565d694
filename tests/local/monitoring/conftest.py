"""The servers of tests/local/serving, for Prometheus to scrape."""

from tests.local.serving.served_engine import engine, make_repository, start_server

__all__ = ["engine", "make_repository", "start_server"]
