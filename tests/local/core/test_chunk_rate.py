"""What a process of the load generator can stamp, measured on this machine."""

from tasks.adapters.chunk_rate import loopback_chunks_per_s


def test_a_rate_is_measured_even_if_the_time_is_over_at_once():
    assert loopback_chunks_per_s(for_s=0.0) > 0
