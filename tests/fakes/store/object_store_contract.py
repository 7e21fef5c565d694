"""What every object store promises. Subclasses give the fixtures `store` and `root` (a URI that nothing lies under)."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from slipway.tasks.adapters.store.object_store import LostRaceError, NotFoundError
from slipway.tasks.contracts.errors import InputError, UnavailableError

LARGE = 17 * 2**20  # more than one part


class ObjectStoreContract:
    def test_an_object_is_read_as_it_was_written(self, store, root):
        store.put_bytes(f"{root}/a.json", b"{}")

        assert store.read_bytes(f"{root}/a.json") == b"{}"

    def test_an_absent_object_is_an_input_error_that_names_it(self, store, root):
        with pytest.raises(NotFoundError) as caught:
            store.read_bytes(f"{root}/absent")

        assert isinstance(caught.value, InputError)
        assert f"{root}/absent" in caught.value.what

    def test_a_whole_bucket_is_not_an_address(self, store, root):
        bucket = "/".join(root.split("/")[:3]) + "/"

        for look in (store.list, store.uploads):
            with pytest.raises(InputError) as caught:
                list(look(bucket))
            assert caught.value.what == "invalid address of an object"

    def test_asking_for_an_absent_object_is_no_error(self, store, root):
        assert store.read_with_etag(f"{root}/absent") is None
        assert store.describe(f"{root}/absent") is None
        assert not store.exists(f"{root}/absent")

    def test_creating_what_exists_loses_the_race_and_changes_nothing(self, store, root):
        store.put_if(f"{root}/c", b"first", etag=None)

        with pytest.raises(LostRaceError):
            store.put_if(f"{root}/c", b"second", etag=None)

        assert store.read_bytes(f"{root}/c") == b"first"

    def test_a_swap_needs_the_current_etag(self, store, root):
        etag = store.put_if(f"{root}/c", b"1", etag=None)
        newer = store.put_if(f"{root}/c", b"2", etag=etag)

        with pytest.raises(LostRaceError):
            store.put_if(f"{root}/c", b"3", etag=etag)

        assert store.read_with_etag(f"{root}/c") == (b"2", newer)

    def test_a_swap_of_what_was_deleted_loses_the_race(self, store, root):
        etag = store.put_if(f"{root}/c", b"1", etag=None)
        store.delete([f"{root}/c"])

        with pytest.raises(LostRaceError):
            store.put_if(f"{root}/c", b"2", etag=etag)

    def test_of_many_creators_one_wins(self, store, root):
        _race(store, f"{root}/race", None)

    def test_of_many_who_swap_one_etag_one_wins(self, store, root):
        _race(store, f"{root}/race", store.put_if(f"{root}/race", b"first", etag=None))

    def test_a_list_holds_what_lies_under_the_prefix(self, store, root):
        for name in ("x/1", "x/2", "y/1"):
            store.put_bytes(f"{root}/{name}", name.encode())

        found = {item.uri: item.size_bytes for item in store.list(f"{root}/x/")}

        assert found == {f"{root}/x/1": 3, f"{root}/x/2": 3}

    @pytest.mark.parametrize("size_bytes", [0, 5, LARGE])
    def test_a_file_comes_back_byte_by_byte(self, store, root, tmp_path, size_bytes):
        data = bytes(range(256)) * (size_bytes // 256) + b"x" * (size_bytes % 256)
        (tmp_path / "up").write_bytes(data)
        sent, got = [], []

        store.put_file(tmp_path / "up", f"{root}/f", sent.append, sha256=hashlib.sha256(data).hexdigest())
        digest = store.get_file(f"{root}/f", tmp_path / "down", size_bytes, got.append)

        assert (tmp_path / "down").read_bytes() == data
        assert digest == hashlib.sha256(data).hexdigest()
        assert (sum(sent), sum(got)) == (size_bytes, size_bytes)
        assert store.describe(f"{root}/f").sha256 == hashlib.sha256(data).hexdigest()
        assert store.describe(f"{root}/f").size_bytes == size_bytes

    def test_getting_an_absent_file_leaves_no_file(self, store, root, tmp_path):
        with pytest.raises(NotFoundError):
            store.get_file(f"{root}/absent", tmp_path / "down", 3)

        assert list(tmp_path.iterdir()) == []

    def test_a_part_is_read_only_of_the_object_that_was_listed(self, store, root):
        store.put_bytes(f"{root}/part", b"0123456789")
        (listed,) = store.list(f"{root}/part")
        view = memoryview(bytearray(3))

        for etag in (listed.etag, None):
            store.read_into(listed.uri, view, offset=4, size_bytes=10, etag=etag)
            assert bytes(view) == b"456"

        store.put_bytes(f"{root}/part", b"abcdefghij")
        with pytest.raises(LostRaceError):
            store.read_into(listed.uri, view, offset=4, size_bytes=10, etag=listed.etag)
        store.put_bytes(f"{root}/part", b"short")
        with pytest.raises(LostRaceError):
            store.read_into(listed.uri, view, offset=4, size_bytes=10, etag=None)
        store.delete([listed.uri])
        with pytest.raises(NotFoundError):
            store.read_into(listed.uri, view, offset=0, size_bytes=10, etag=listed.etag)

    def test_a_copy_is_the_same_and_keeps_what_was_said_of_it(self, store, root, tmp_path):
        (tmp_path / "up").write_bytes(b"engine")
        store.put_file(tmp_path / "up", f"{root}/from", sha256="a" * 64)

        store.copy(store.describe(f"{root}/from"), f"{root}/to")

        assert store.read_bytes(f"{root}/to") == b"engine"
        assert store.describe(f"{root}/to").sha256 == "a" * 64

    def test_only_what_was_described_is_copied(self, store, root):
        store.put_bytes(f"{root}/from", b"engine")
        described = store.describe(f"{root}/from")

        store.put_bytes(f"{root}/from", b"ENGINE")
        with pytest.raises(UnavailableError):
            store.copy(described, f"{root}/to")
        store.delete([f"{root}/from"])
        with pytest.raises(NotFoundError):
            store.copy(described, f"{root}/to")

        assert not store.exists(f"{root}/to")

    def test_deleting_is_done_twice_as_well_as_once(self, store, root):
        store.put_bytes(f"{root}/d", b"")

        store.delete([f"{root}/d", f"{root}/never"])
        store.delete([f"{root}/d"])

        assert not store.exists(f"{root}/d")

    def test_an_object_is_replaced_by_a_later_one(self, store, root):
        store.put_bytes(f"{root}/r", b"1")
        store.put_bytes(f"{root}/r", b"2")

        assert store.read_bytes(f"{root}/r") == b"2"

    def test_a_list_is_in_the_order_of_the_keys_bytes_and_says_when_each_was_written(self, store, root):
        for name in ("o/b/x", "o/b.json", "o/B", "o/_", "o/b-", "o/é"):
            store.put_bytes(f"{root}/{name}", b"")

        listed = list(store.list(f"{root}/o/"))

        assert [item.uri for item in listed] == [f"{root}/o/{name}" for name in ("B", "_", "b-", "b.json", "b/x", "é")]
        assert all(abs(datetime.now(UTC) - item.modified_at) < timedelta(minutes=5) for item in listed)
        assert store.describe(f"{root}/o/B").modified_at.utcoffset() == timedelta()

    def test_a_list_and_a_read_give_the_same_etag(self, store, root):
        etag = store.put_if(f"{root}/e", b"1", etag=None)

        (listed,) = store.list(f"{root}/e")

        assert listed.etag == etag == store.describe(f"{root}/e").etag == store.read_with_etag(f"{root}/e")[1]

    def test_more_objects_than_one_request_takes_are_listed_and_deleted(self, store, root):
        uris = [f"{root}/many/{number:04}" for number in range(1003)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda uri: store.put_bytes(uri, b""), uris))

        listed = [item.uri for item in store.list(f"{root}/many/")]
        refused = store.delete(uris)

        assert (listed, refused, list(store.list(f"{root}/many/"))) == (uris, {}, [])


def _race(store, uri, etag):
    """Let many writers give the same condition; one of them wins, and what it wrote is there."""

    def write(number):
        try:
            store.put_if(uri, str(number).encode(), etag=etag)
        except LostRaceError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(write, range(16)) if number is not None]

    assert len(winners) == 1
    assert store.read_bytes(uri) == str(winners[0]).encode()
