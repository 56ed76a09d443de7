"""Segments that a stream has not read: listed once, and merged by their landing time."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.pipeline.segments import Landing, LandingLog, MergedFile, Segment
from sluice.pipeline.stores import LocalStore
from sluice.pipeline.unread import UNLIMITED, UnreadLog, merge_segments

KEY = "l/a"
Entries = tuple[list[tuple[str, int]], list[str]]
START = 1_700_000_000_000


def publish(landing: Landing, *numbers: int, key: str = KEY) -> None:
    landing.store.make_folder(key)
    for number in numbers:
        landing.store.publish(Segment(key, number, START + number, 10, 1).path, b"x")


def numbers(log: UnreadLog) -> tuple[list[int], list[int]]:
    """Return the numbers of the readable and of the hidden segments, and check the sums."""
    assert (log.rows, log.octets) == (10 * len(log.readable), len(log.readable))
    return [each.number for each in log.readable], [each.number for each in log.hidden]


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    landing = Landing.create(str(tmp_path))
    publish(landing, 0, 1, 2)
    return landing


def test_log_without_position_begins_with_oldest_segment(landing: Landing):
    landing.store.delete(Segment(KEY, 0, START, 10, 1).path)
    log = UnreadLog(KEY)
    assert log.update(landing, None)
    assert numbers(log) == ([1, 2], [])
    publish(landing, 3)
    assert log.update(landing, None)
    assert numbers(log) == ([1, 2, 3], [])


def test_read_segments_are_dropped_and_new_ones_added(landing: Landing):
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    publish(landing, 3)
    log.update(landing, 2)
    assert numbers(log) == ([2, 3], [])
    log.update(landing, 4)
    assert numbers(log) == ([], [])
    publish(landing, 4)
    log.update(landing, 4)
    assert (numbers(log), log.end, log.last_end) == (([4], []), 5, 5)


def test_known_segments_are_not_listed_again(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    listed: list[str] = []
    entries = LocalStore.entries

    def spy(store: LocalStore, folder: str, first: str = "") -> Entries:
        found = entries(store, folder, first)
        listed.extend(name for name, _ in found[0])
        return found

    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    publish(landing, 3)
    monkeypatch.setattr(LocalStore, "entries", spy)
    log.update(landing, 1)
    assert [int(name.partition("-")[0]) for name in listed] == [2, 3], "the last known segment, and the new one"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Folders that are listed from now on: on an object store each costs a request for 1,000 names."""
    found: list[str] = []
    entries = LocalStore.entries

    def spy(store: LocalStore, folder: str, first: str = "") -> Entries:
        found.append(folder)
        return entries(store, folder, first)

    monkeypatch.setattr(LocalStore, "entries", spy)
    return found


def test_update_lists_one_folder_of_a_log_with_new_segments(landing: Landing, listed: list[str]):
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    publish(landing, *range(3, 999))
    listed.clear()
    log.update(landing, 3)
    assert (log.end, listed) == (999, [f"{KEY}/000000000"])
    publish(landing, 999, 1000)
    listed.clear()
    log.update(landing, 999)
    assert (log.end, listed) == (1001, [f"{KEY}/000000000", f"{KEY}/000000001"])
    listed.clear()
    log.update(landing, 1001)
    assert listed == [f"{KEY}/000000001"], "so does an idle log"


def test_folders_behind_an_idle_log_are_looked_for_at_times(
    landing: Landing, listed: list[str], monkeypatch: pytest.MonkeyPatch
):
    log = UnreadLog(KEY, 0)
    for every, expected in ((0, None), (30, [f"{KEY}/000000000", KEY]), (0, [f"{KEY}/000000000"])):
        monkeypatch.setattr("sluice.pipeline.unread.LATER_EVERY", every)
        listed.clear()
        log.update(landing, 3 if expected else 0)
        assert expected in (None, listed)


def test_hole_at_the_end_of_a_folder_is_found(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sluice.pipeline.unread.LATER_EVERY", 0)
    publish(landing, *range(3, 998))
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    publish(landing, 998, 1000)  # 999 is missing
    log.update(landing, 998)
    log.update(landing, 999)
    assert numbers(log) == ([], [1000])
    publish(landing, 999)
    log.update(landing, 999)
    assert numbers(log) == ([999, 1000], [])


def test_log_breaks_are_counted(landing: Landing):
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    breaks = log.breaks
    publish(landing, 3)
    log.update(landing, 3)
    log.update(landing, 4)
    assert log.breaks == breaks
    landing.store.delete(Segment(KEY, 3, START + 3, 10, 1).path)
    landing.store.publish(Segment(KEY, 3, START + 4, 10, 1).path, b"x")
    log.update(landing, 4)
    assert log.breaks > breaks, "the last segment is another one"


@given(st.lists(st.one_of(st.integers(0, 11), st.sampled_from(["update", "read", "collect"])), max_size=40))
def test_kept_log_equals_one_that_lists_all(steps: list[int | str]):
    """Segments appear in any order, in folders of three."""
    with TemporaryDirectory() as path, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.pipeline.segments.SEGMENTS_OF_FOLDER", 3)
        patch.setattr("sluice.pipeline.unread.LATER_EVERY", 0)
        landing = Landing(LocalStore(path))
        patch.setattr(LocalStore, "publish", lambda store, path, _: write(store, path))
        first = 0
        kept = UnreadLog(KEY, 0)
        for step in [*steps, "update"]:
            if isinstance(step, int):
                publish(landing, step) if step >= first else None
            elif step == "read":
                first = kept.end
            elif step == "collect":
                for number in range(first - 1):
                    landing.store.delete(Segment(KEY, number, START + number, 10, 1).path)
            else:
                kept.update(landing, first)
                kept.update(landing, first)  # folders behind a hole are looked for once no segment is new
                fresh = UnreadLog(KEY, first)
                fresh.update(landing, first)
                assert (numbers(kept), kept.end) == (numbers(fresh), fresh.end)


def write(store: LocalStore, path: str) -> None:
    """Make a segment without synchronising it."""
    (store.root / path).parent.mkdir(parents=True, exist_ok=True)
    (store.root / path).write_bytes(b"x")


def test_log_goes_on_in_the_next_folder(landing: Landing, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sluice.pipeline.unread.LATER_EVERY", 0)
    log = UnreadLog(KEY, 3)
    publish(landing, *range(3, 1000))
    log.update(landing, 999)
    publish(landing, 1000)
    log.update(landing, 1000)
    assert numbers(log) == ([1000], [])
    publish(landing, 2000)
    log.update(landing, 1001)
    assert numbers(log) == ([], [2000]), "a whole folder may be missing"


def test_hole_hides_later_segments_until_it_is_filled_or_skipped(landing: Landing):
    publish(landing, 5, 6)
    log = UnreadLog(KEY, 1)
    log.update(landing, 1)
    assert (numbers(log), log.end, log.last_end) == (([1, 2], [5, 6]), 3, 7)
    assert (log.hole_before(5), log.hole_before(6)) == (False, True)
    publish(landing, 3)
    log.update(landing, 1)
    assert (numbers(log), log.end) == (([1, 2, 3], [5, 6]), 4)
    log.skip_hole()
    log.update(landing, 4)
    assert (numbers(log), log.end) == (([5, 6], []), 7)


def test_log_that_ends_before_the_position_is_reported(landing: Landing):
    log = UnreadLog(KEY, 5)
    assert not log.update(landing, 5)
    assert log.end == 3
    assert UnreadLog(KEY, 3).update(landing, 3)
    assert UnreadLog("l/none", 0).update(landing, 0)
    assert not UnreadLog("l/none", 1).update(landing, 1)


def test_deleted_unread_segments_are_a_hole(landing: Landing):
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    for segment in list(log.readable)[1:]:
        landing.store.delete(segment.path)
    assert log.update(landing, 0)
    assert numbers(log) == ([0], [])


def test_stream_that_begins_again_lists_again(landing: Landing):
    log = UnreadLog(KEY, 3)
    log.update(landing, 3)
    log.update(landing, 1)
    assert numbers(log) == ([1, 2], [])


def run(key: str, *landed: int, rows: int = 10) -> list[Segment]:
    return [Segment(key, number, time, rows, 1) for number, time in enumerate(landed)]


def places(segments: list[Segment]) -> list[tuple[str, int]]:
    return [(each.log, each.number) for each in segments]


def test_merge_takes_segments_by_landing_time():
    runs = [run("a", 1, 3, 9), run("b", 2, 4)]
    taken = merge_segments(runs, 40, 100, UNLIMITED, UNLIMITED)
    assert places(taken) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


@pytest.mark.parametrize(
    ("limits", "count"),
    [((25, 9, 9), 2), ((1, 9, 9), 1), ((99, 3, 9), 3), ((99, 9, 2), 2), ((99, 9, UNLIMITED), 4)],
)
def test_merge_stops_at_the_first_limit(limits: tuple[int, int, int], count: int):
    assert len(merge_segments([run("a", 1, 2, 3, 4)], *limits, UNLIMITED)) == count


def test_merge_takes_nothing_that_landed_after_the_bound():
    assert places(merge_segments([run("a", 1, 3), run("b", 2)], 99, 99, 9, 2)) == [("a", 0), ("b", 0)]
    assert merge_segments([run("a", 3)], 99, 99, 9, 2) == []


@given(st.lists(st.lists(st.integers(0, 50), max_size=12).map(sorted), max_size=5), st.integers(1, 60))
def test_merge_never_passes_the_oldest_segment_left(times: list[list[int]], rows: int):
    runs = [run(LandingLog("l", str(index)).key, *landed) for index, landed in enumerate(times)]
    taken = merge_segments(runs, rows, UNLIMITED, UNLIMITED, UNLIMITED)
    left = [segment for each in runs for segment in each if segment not in taken]
    assert bool(taken) == any(runs)
    assert max((each.landed for each in taken), default=0) <= min((each.landed for each in left), default=99)
    for each in runs:
        own = [segment for segment in taken if segment in each]
        assert own == each[: len(own)], "a log has its order"


def test_position_within_a_merged_file_leaves_the_part_behind_it(landing: Landing):
    publish(landing, *range(3, 8))
    landing.store.publish(MergedFile(KEY, 0, 5, START + 5, 60, 1).path, b"x")
    log = UnreadLog(KEY, 0)
    log.update(landing, 0)
    assert [(each.number, each.end) for each in log.readable] == [(0, 6), (6, 7), (7, 8)]
    assert [(each.number, each.end) for each in log.before(3)] == [(0, 3)]
    log.update(landing, 4)
    assert [(each.number, each.end) for each in log.readable] == [(4, 6), (6, 7), (7, 8)]
    assert (log.rows, log.end) == (40, 8)
