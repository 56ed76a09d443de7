"""Names, holes, groups and deletion of segments, in real folders."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.pipeline.errors import LandingError, LockedError
from sluice.pipeline.retention import delete_consumed_segments
from sluice.pipeline.segments import (
    CONSUMERS,
    FORMAT_FILE,
    Group,
    Landing,
    LandingLog,
    Listing,
    Segment,
    consumed_end,
    octets_from,
    parse_log_key,
    parse_segment_name,
    quote_address,
)
from sluice.pipeline.stores import LocalStore

KEY = "l/a"
Entries = tuple[list[tuple[str, int]], list[str]]


def publish_segments(landing: Landing, *numbers: int, key: str = KEY, landed: int = 1_700_000_000_000) -> list[Segment]:
    """Publish segments with these numbers. Segment n has n + 1 octets."""
    landing.store.make_folder(key)
    made = [Segment(key, number, landed + number, 10, number + 1) for number in numbers]
    for segment in made:
        landing.store.publish(segment.path, b"x" * segment.octets)
    return made


@pytest.fixture
def landing(tmp_path):
    return Landing.create(str(tmp_path / "deep" / "landing"))


def test_landing_folder_format_is_checked(tmp_path):
    url = str(tmp_path / "x")
    with pytest.raises(LandingError, match="is not a landing folder"):
        Landing.open(url)
    Landing.create(url)
    Landing.create(url)
    assert Landing.open(url).logs() == []
    (tmp_path / "x" / FORMAT_FILE).write_text('{"format": 3}')
    with pytest.raises(LandingError, match="has format 3; this version of the pipeline reads 1 and 2"):
        Landing.open(url)
    (tmp_path / "x" / FORMAT_FILE).write_text("{")
    with pytest.raises(LandingError, match="is damaged"):
        Landing.create(url)


@given(st.integers(0, 10**12 - 1), st.integers(10**12, 10**13), st.integers(1, 10**9), st.integers(1, 10**12))
def test_segment_name_round_trips(number, landed, rows, octets):
    segment = Segment(KEY, number, landed, rows, octets)
    assert parse_segment_name(KEY, segment.name) == segment


@pytest.mark.parametrize("name", ["x.parquet", "1-2-3-4.parquet", ".000000000001-1700000000000-1-2.parquet.tmp", ""])
def test_foreign_names_are_no_segments(name):
    assert parse_segment_name(KEY, name) is None


@given(st.text(min_size=1, max_size=15))
def test_address_folder_round_trips(address):
    folder = quote_address(address) if address.isprintable() and address.isascii() else None
    if folder is None:
        return
    assert "/" not in folder
    assert folder[0] not in "._"
    assert parse_log_key(f"l/{folder}") == LandingLog("l", address)
    assert LandingLog("l", address).key == f"l/{folder}"


@pytest.mark.parametrize("address", ["", "x" * 201, "/" * 70])
def test_addresses_that_are_no_folders_are_refused(address):
    with pytest.raises(LandingError, match="cannot be a folder name"):
        quote_address(address)


@pytest.mark.parametrize("key", ["", "l", "l/", "/a", "../a", "l/a/b"])
def test_foreign_keys_are_refused(key):
    with pytest.raises(LandingError, match="is not a log"):
        parse_log_key(key)


def test_listing_sorts_segments_and_names_foreign_files(landing):
    made = publish_segments(landing, 2, 0, 1)
    landing.store.publish(f"{KEY}/notes.txt", b"?")
    landing.store.publish(f"{KEY}/_SUCCESS", b"")
    landing.store.publish(f"{KEY}/.hidden", b"")
    listing = landing.listing(KEY)
    assert listing.segments == sorted(made)
    assert listing.foreign == ["notes.txt"]
    assert listing.end == 3
    assert listing.octets == 6
    assert [log.key for log in landing.logs()] == [KEY]
    assert landing.listing("l/nothing") == Listing("l/nothing", [])


def test_segments_are_in_folders_of_a_thousand(landing):
    made = publish_segments(landing, 998, 999, 1000, 1001, 2000)
    folders = sorted(path.name for path in (landing.store.root / KEY).iterdir())
    assert folders == ["000000000", "000000001", "000000002"]
    landing.store.publish(f"{KEY}/000000001/{made[0].name}", b"x" * 999)
    listing = landing.listing(KEY)
    assert listing.segments == made
    assert listing.foreign == [f"000000001/{made[0].name}"], "a segment in another folder is not a segment"
    assert landing.listing(KEY, 999).segments == made[1:]
    assert landing.listing(KEY, 1001, 1500).segments == made[3:4]
    assert landing.end(KEY) == 2001
    assert landing.end("l/nothing") == 0


def record_listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets each folder that is listed from now on."""
    listed: list[str] = []
    entries, names = LocalStore.entries, LocalStore.names

    def record(store: LocalStore, folder: str, first: str = "") -> Entries:
        listed.append(folder)
        return entries(store, folder, first)

    def record_names(store: LocalStore, folder: str) -> list[str]:
        listed.append(folder)
        return names(store, folder)

    monkeypatch.setattr(LocalStore, "entries", record)
    monkeypatch.setattr(LocalStore, "names", record_names)
    return listed


def test_folders_of_read_segments_are_not_listed(landing, monkeypatch):
    publish_segments(landing, 0, 1000, 2000, 3000)
    listed = record_listings(monkeypatch)
    landing.listing(KEY, 1500, 2500)
    assert listed == [KEY, f"{KEY}/000000001", f"{KEY}/000000002"]
    listed.clear()
    assert landing.end(KEY) == 3001
    assert listed == [KEY, f"{KEY}/000000003"]


def make_format_one(landing, *numbers):
    """Make the folder one of format 1, with these segments."""
    (landing.store.root / FORMAT_FILE).write_text('{"format": 1, "other": 5}')
    landing.store.make_folder(KEY)
    made = [Segment(KEY, number, 1_700_000_000_000, 10, 1, flat=True) for number in numbers]
    for segment in made:
        landing.store.publish(segment.path, b"x")
    return made


def test_folder_of_format_one_is_read_and_continued(landing):
    made = make_format_one(landing, 0, 1)
    opened = Landing.open(landing.url)
    assert (opened.listing(KEY).segments, opened.end(KEY)) == (made, 2)
    assert json.loads((landing.store.root / FORMAT_FILE).read_text())["format"] == 1, "a reader changes nothing"
    continued = Landing.create(landing.url)
    assert json.loads((landing.store.root / FORMAT_FILE).read_text()) == {"format": 2, "other": 5}
    made += publish_segments(continued, 2)
    assert [each.number for each in continued.listing(KEY).segments] == [0, 1, 2]
    assert continued.listing(KEY, 1).segments == made[1:]
    continued.commit(Group("g", {KEY: 3}))
    assert delete_consumed_segments(continued, 0, at=1_800_000_000_000) == made[:2]
    assert continued.listing(KEY).segments == made[2:]


def test_truncated_segment_is_named(landing):
    (segment,) = publish_segments(landing, 5)
    path = landing.store.root / segment.path
    os.truncate(path, 3)
    with pytest.raises(LandingError, match=rf"{segment.name} has 3 octets instead of 6: it is damaged"):
        landing.listing(KEY)


def test_duplicate_segment_numbers_are_named(landing):
    publish_segments(landing, 1)
    publish_segments(landing, 1, landed=1_800_000_000_000)
    with pytest.raises(LandingError, match="has two segments with number 1: "):
        landing.listing(KEY)


def test_range_of_listing_names_missing_numbers(landing):
    _, one, three = publish_segments(landing, 0, 1, 3)
    listing = landing.listing(KEY)
    assert listing.range(1, 4) == ([one, three], [2])
    assert octets_from(listing, 1) == 2 + 4


def test_groups_round_trip(landing):
    assert landing.groups() == []
    a = Group("a", {KEY: 3, "l/b": 1}, committed=5)
    b = Group("b", {}, subscribe=("x",), pattern="y.*", committed=6)
    landing.commit(b)
    landing.commit(a)
    landing.commit(a)
    assert landing.groups() == [a, b]
    assert landing.logs() == []
    landing.forget_group("a")
    assert landing.groups() == [b]
    landing.store.publish(f"{CONSUMERS}/c.json", json.dumps({"offsets": 3}).encode())
    with pytest.raises(LandingError, match=r"c\.json is damaged"):
        landing.groups()
    with pytest.raises(LandingError, match="group '../x'"):
        landing.commit(Group("../x", {}))


def test_consumed_is_minimum_over_interested_groups():
    log = LandingLog("l", "a")
    everything, some, none = Group("e", {KEY: 5}), Group("s", {KEY: 3}, subscribe=("a",)), Group("n", {})
    other = Group("o", {"l/b": 9}, subscribe=("b",))
    assert consumed_end(log, []) == 0
    assert consumed_end(log, [everything, some, other]) == 3
    assert consumed_end(log, [everything, Group("p", {KEY: 4}, pattern="[ab]")]) == 4
    assert consumed_end(log, [everything, none]) == 0  # group `none` has no offset for this log yet
    assert consumed_end(log, [other]) == 0


def test_collect_keeps_recent_unread_and_last_segments(landing):
    made = publish_segments(landing, 0, 1, 2, 3, 4)
    at = made[3].landed + 60_000
    assert delete_consumed_segments(landing, 60, at=at) == []
    landing.commit(Group("g", {KEY: 3}))
    landing.commit(Group("h", {KEY: 9}))
    assert delete_consumed_segments(landing, 60, at=at, dry=True) == made[:3]
    assert delete_consumed_segments(landing, 60.0025, at=at) == made[:2]
    assert landing.listing(KEY).segments == made[2:]
    landing.commit(Group("g", {KEY: 9}))
    assert delete_consumed_segments(landing, 0, at=at + 10**6) == made[2:4]
    assert landing.listing(KEY).segments == made[4:]


def test_collect_deletes_empty_folders_and_lists_no_recent_ones(landing, monkeypatch):
    made = publish_segments(landing, *range(998, 1003), 2000, 3000)
    landing.commit(Group("g", {KEY: 3001}))
    listed = record_listings(monkeypatch)
    at = made[2].landed + 10_000
    assert delete_consumed_segments(landing, 10, at=at) == made[:3]
    assert f"{KEY}/000000002" not in listed, "segments behind a recent one are recent as well"
    assert sorted(path.name for path in (landing.store.root / KEY).iterdir()) == ["000000001", "000000002", "000000003"]
    assert delete_consumed_segments(landing, 0, at=at + 10**6) == made[3:6]
    assert [path.name for path in (landing.store.root / KEY).iterdir()] == ["000000003"]


def test_collect_passes_segments_of_a_clock_that_was_ahead(landing):
    day = 86_400_000
    made = publish_segments(landing, 0) + publish_segments(landing, 1, 2, landed=1_700_000_000_000 + day)
    made += publish_segments(landing, 1000, 1001, 1002)
    landing.commit(Group("g", {KEY: 1003}))
    assert delete_consumed_segments(landing, 0, at=made[4].landed) == made[:5]


def test_leftovers_of_killed_publisher_are_ignored_and_cleared(landing):
    publish_segments(landing, 0)
    left = landing.store.root / KEY / "000000000" / ".000000000001-1700000000000-1-2.parquet.tmp"
    left.write_bytes(b"half")
    assert len(landing.listing(KEY).segments) == 1
    assert landing.listing(KEY).foreign == []
    landing.store.clear(KEY)
    assert not left.exists()


def test_failed_publication_leaves_no_file(landing, monkeypatch):
    landing.store.make_folder(KEY)
    with pytest.raises(OSError, match="File name too long"):
        landing.store.publish(f"{KEY}/{'x' * 300}", b"")
    with pytest.raises(TypeError):
        landing.store.publish(f"{KEY}/x", "text")
    assert [name for name, _ in landing.store.files(KEY) if not name.startswith(".")] == []


def test_lock_is_exclusive(landing):
    landing.store.make_folder("l")
    first = landing.store.lock("l/.lock")
    with pytest.raises(LockedError, match=rf"is locked by process {os.getpid()} on "):
        landing.store.lock("l/.lock")
    first.renew()
    first.release()
    landing.store.lock("l/.lock").release()


def test_publication_makes_the_missing_folder_but_not_its_parent(landing):
    landing.store.make_folder(KEY)
    landing.store.publish(f"{KEY}/000000007/x", b"1")
    assert landing.store.read(f"{KEY}/000000007/x") == b"1"
    with pytest.raises(FileNotFoundError):
        landing.store.publish("l/deleted/000000007/x", b"1")


def test_folder_is_deleted_only_if_it_is_empty(landing):
    landing.store.make_folder(f"{KEY}/000000007")
    landing.store.publish(f"{KEY}/000000007/x", b"1")
    landing.store.delete_folder(f"{KEY}/000000007")
    landing.store.delete(f"{KEY}/000000007/x")
    assert landing.store.folders(KEY) == ["000000007"]
    landing.store.delete_folder(f"{KEY}/000000007")
    landing.store.delete_folder(f"{KEY}/000000007")
    assert landing.store.folders(KEY) == []
