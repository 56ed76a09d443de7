"""Lines of the log on their way to the export process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sluice.router.log import LogEntry
from sluice.supervisor.otlp.log_lines import LINES_OF_MESSAGE, MOST_LINES, Line, LogLines

ENTRY = LogEntry("SERVER", "info", "text", None, None, 7, 5)


class SentLines:
    """Lines with the messages that were sent, and the number of dropped lines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.messages: list[list[Line]] = []
        self.dropped: list[int] = []
        self.lines = LogLines(loop, self.messages.append, self.dropped.append)


@pytest.fixture
def sent() -> Iterator[SentLines]:
    loop = asyncio.new_event_loop()
    made = SentLines(loop)
    yield made
    made.lines.flush()
    loop.close()


def test_lines_are_sent_together_with_their_worker(sent: SentLines) -> None:
    sent.lines.add([ENTRY], None, 0)
    sent.lines.add([ENTRY, ENTRY], 3, 0)
    assert not sent.messages
    sent.lines.flush()
    assert sent.messages == [[(None, *ENTRY), (3, *ENTRY), (3, *ENTRY)]]
    sent.lines.flush()
    assert len(sent.messages) == 1
    assert not sent.dropped


def test_lines_beyond_limit_and_missing_ones_are_counted_as_dropped(sent: SentLines) -> None:
    sent.lines.add([ENTRY] * MOST_LINES, 0, 0)
    sent.lines.add([ENTRY] * 2, 1, 5)
    sent.lines.flush()
    assert sent.dropped == [7]
    assert [len(message) for message in sent.messages] == [LINES_OF_MESSAGE] * (MOST_LINES // LINES_OF_MESSAGE)
