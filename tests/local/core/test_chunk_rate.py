"""What a process of the load generator can stamp, measured on this machine."""

from slipway.tasks.adapters.load.chunk_rate import loopback_chunks_per_s


def test_a_proxy_that_the_environment_names_does_not_stand_between(monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert loopback_chunks_per_s(for_s=0.0) > 0


def test_a_rate_is_measured_even_if_the_time_is_over_at_once():
    assert loopback_chunks_per_s(for_s=0.0) > 0
