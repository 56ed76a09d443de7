"""Files of captures: what is written is read, and damage is found."""

import contextlib
from pathlib import Path

import pytest

from sluice.router.capture import capture_file
from sluice.router.capture.capture_file import (
    MAGIC,
    MESSAGE_MOST,
    RECORD_MOST,
    CapturedMessage,
    CaptureError,
    CaptureHeader,
    CaptureReader,
    CaptureTrailer,
    CaptureWriter,
)

HEADER = CaptureHeader(began=1, router="R", patterns=["a/#"], payload=True, version="1")
MESSAGES = [
    CapturedMessage(5, "a/b", b"\x00Sw\x43"),
    CapturedMessage(2**63, "\u00fc" * 100, b"", settled=True, message_format=2**32 - 1, omitted=MESSAGE_MOST),
    CapturedMessage(7, "", b"x" * 70_000),
]
TRAILER = CaptureTrailer(ended=9, messages=3, reason="time", selected=3, missed={"too long": 0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capture"


def write(path: Path, trailer: CaptureTrailer | None = TRAILER) -> bytes:
    writer = CaptureWriter(path, HEADER)
    for message in MESSAGES:
        writer.write(message)
    writer.flush()
    assert writer.octets == path.stat().st_size
    if trailer is not None:
        writer.finish(trailer)
    return path.read_bytes()


def test_written_messages_are_read_unchanged(path: Path) -> None:
    write(path)
    with CaptureReader(path) as reader:
        assert reader.header == HEADER
        assert list(reader) == MESSAGES
        assert (reader.trailer, reader.cut) == (TRAILER, 0)


def test_file_is_readable_up_to_the_last_whole_record(path: Path) -> None:
    octets = write(path, None)
    empty = CaptureWriter(path.with_name("empty"), HEADER)
    empty.flush()
    for size in range(len(MAGIC), empty.octets):
        path.write_bytes(octets[:size])
        with pytest.raises(CaptureError, match="has no header"):
            CaptureReader(path)
    ends = set()
    for size in range(empty.octets, len(octets), 97):
        path.write_bytes(octets[:size])
        with CaptureReader(path) as reader:
            found = list(reader)
            assert found == MESSAGES[: len(found)]
            assert reader.trailer is None
            ends.add(size - reader.cut)
    assert len(ends) == len(MESSAGES)


def test_file_with_changed_octet_is_refused(path: Path) -> None:
    octets = write(path)
    for at in [*range(500), *range(500, len(octets), 997)]:
        path.write_bytes(octets[:at] + bytes([octets[at] ^ 0x10]) + octets[at + 1 :])
        with contextlib.suppress(CaptureError), CaptureReader(path) as reader:
            found = list(reader)
            assert reader.trailer is None, f"octet {at}"
            assert found == MESSAGES[: len(found)]


def test_length_beyond_the_bound_is_refused_before_reading(path: Path) -> None:
    octets = write(path, None)
    path.write_bytes(octets + b"M" + (RECORD_MOST + 1).to_bytes(4) + bytes(4))
    with CaptureReader(path) as reader, pytest.raises(CaptureError, match="has no valid kind and length"):
        list(reader)


def test_size_of_an_omitted_body_beyond_the_bound_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sluice replay --fill` makes a body of this size."""
    monkeypatch.setattr(capture_file, "MESSAGE_MOST", 1 << 63)
    writer = CaptureWriter(path, HEADER)
    writer.write(CapturedMessage(1, "a", b"x", omitted=1 << 40))
    writer.finish(TRAILER)
    monkeypatch.undo()
    with CaptureReader(path) as reader, pytest.raises(CaptureError, match="has a message of 1099511627777 octets"):
        list(reader)


def test_record_behind_the_trailer_is_refused(path: Path) -> None:
    octets = write(path)
    path.write_bytes(octets + octets[len(MAGIC) :])
    with CaptureReader(path) as reader, pytest.raises(CaptureError, match="follows the trailer"):
        list(reader)


def test_file_of_other_kind_is_refused_by_name(path: Path) -> None:
    path.write_text("something else")
    with pytest.raises(CaptureError, match=f"{path} is not a capture"):
        CaptureReader(path)


def test_message_that_no_reader_accepts_is_not_written(path: Path) -> None:
    writer = CaptureWriter(path, HEADER)
    for message in (
        CapturedMessage(1, "a" * 70_000, b""),
        CapturedMessage(1, "a", bytes(RECORD_MOST)),
        CapturedMessage(1, "a", b"", omitted=MESSAGE_MOST + 1),
    ):
        with pytest.raises(CaptureError, match="too long for a capture"):
            writer.write(message)
    writer.discard()
    assert not path.exists()
