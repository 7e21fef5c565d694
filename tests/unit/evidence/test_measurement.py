"""The load metrics are AIPerf's."""

import gzip

import pytest

from slipway.tasks.contracts.measured.measurement import RequestRow, packed, percentile, summarize, unpacked
from slipway.tasks.contracts.spec.gate import Goodput


def row(start=0.0, first=0.1, last=0.5, tokens=5, **changes):
    values = {
        "target": "candidate",
        "concurrency": 1,
        "batch": 0,
        "prompt": "p",
        "ok": True,
        "start_s": start,
        "first_token_s": first,
        "last_token_s": last,
        "output_tokens": tokens,
    }
    return RequestRow.model_validate({**values, **changes})


def test_time_to_first_token_and_latency_start_at_the_request():
    measured = row(start=1.0, first=1.25, last=2.0)

    assert measured.ttft_ms == pytest.approx(250)
    assert measured.latency_ms == pytest.approx(1000)


def test_inter_token_latency_divides_by_the_gaps_between_tokens():
    assert row(first=0.1, last=0.5, tokens=5).itl_ms == pytest.approx(100)


def test_an_answer_of_one_token_has_no_inter_token_latency():
    assert row(tokens=1).itl_ms is None


def test_rates_divide_by_the_time_in_which_the_batch_ran():
    summary = summarize([row(0, 0.1, 1.0, tokens=10), row(1.0, 1.1, 2.0, tokens=30)], Goodput())

    assert summary.output_tokens_per_s == pytest.approx(20)
    assert summary.requests_per_s == pytest.approx(1)


def test_the_pause_between_two_interleaved_batches_is_not_counted():
    rows = [row(0, 0.1, 1.0, tokens=10), row(9.0, 9.1, 10.0, tokens=10, batch=3)]

    assert summarize(rows, Goodput()).output_tokens_per_s == pytest.approx(10)


def test_a_failed_request_counts_as_error_and_adds_no_tokens():
    failed = row(0, None, 1.0, tokens=0, ok=False, error="refused")

    summary = summarize([row(0, 0.1, 1.0, tokens=10), failed], Goodput())

    assert (summary.errors, summary.error_rate) == (1, 0.5)
    assert summary.output_tokens_per_s == pytest.approx(10)


@pytest.mark.parametrize(
    ("level", "good"), [({}, 2), ({"ttft_ms": 150}, 1), ({"latency_ms": 10}, 0), ({"itl_ms": 1000}, 2)]
)
def test_goodput_counts_requests_that_meet_every_limit_that_is_set(level, good):
    rows = [row(0, 0.1, 1.0), row(0, 0.2, 1.0)]

    assert summarize(rows, Goodput(**level)).goodput_per_s == pytest.approx(good)


@pytest.mark.parametrize(("numbers", "percent", "expected"), [([], 50, None), ([3], 95, 3), ([4, 1, 3, 2], 50, 2.5)])
def test_percentiles_interpolate_between_ranks(numbers, percent, expected):
    assert percentile(numbers, percent) == expected


def test_rows_survive_being_packed_and_the_same_rows_are_the_same_bytes():
    rows = [row(), row(target="live", ok=False, error="too late", prompt="北京\n?")]

    assert unpacked(packed(rows)) == rows
    assert packed(rows) == packed(rows)
    assert unpacked(b"") == unpacked(packed([])) == []


def test_rows_of_older_versions_are_plain_lines():
    rows = [row(), row(target="live")]

    assert unpacked(gzip.decompress(packed(rows))) == rows


def test_pandas_reads_packed_rows_as_a_table(tmp_path):
    import pandas as pd

    file = tmp_path / "requests.jsonl.gz"
    file.write_bytes(packed([row(), row(target="live")]))

    table = pd.read_json(file, lines=True)

    assert list(table["target"]) == ["candidate", "live"]
    assert table["last_token_s"].dtype.kind == "f"
