import io

import pytest

from slipway.cli.runs.follow import Progress as FollowedProgress
from slipway.tasks.adapters.progress import Progress, duration, progress_line, size
from tests.fakes.clock import ManualClock


def test_a_line_tells_bytes_of_bytes_rate_and_time_left():
    assert progress_line("download", 42_100_000, 100_000_000, 10.0) == "download: 42.1 of 100.0 MB, 4.2 MB/s, 14 s left"


def test_a_transfer_that_has_not_moved_names_no_rate():
    assert progress_line("download", 0, 5_000_000_000, 7.0) == "download: 0.0 of 5.0 GB, 7 s so far"


def test_a_finished_transfer_says_so():
    assert progress_line("download", 10, 10, 2.0) == "download: 10 of 10 B, 5 B/s, done"


def test_the_command_reads_the_share_from_the_line():
    followed = FollowedProgress.of(progress_line("download", 25_000_000, 100_000_000, 10.0))

    assert followed is not None
    assert followed.share == 0.25


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (59, "59 s"), (300, "5 min"), (5400, "1.5 h")])
def test_times_are_named_in_one_unit(seconds, words):
    assert duration(seconds) == words


@pytest.mark.parametrize(("size_bytes", "words"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2**40, "1.1 TB")])
def test_sizes_are_named_in_one_unit(size_bytes, words):
    assert size(size_bytes) == words


def test_a_terminal_gets_a_bar_that_ends_full():
    terminal = io.StringIO()

    with Progress("download", 100, ManualClock(), terminal) as progress:
        progress.add(100)

    assert terminal.getvalue().endswith("[████████████████████████] download: 100 of 100 B, 0 s so far\n")
