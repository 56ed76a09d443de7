"""Pending outputs of the protocol engine: taken once, with bounded log lines."""

from sluice.router.log import INFO, WARNING
from sluice.supervisor.network.protocol import outbox
from sluice.supervisor.network.protocol.outbox import EngineOutbox
from sluice.supervisor.network.protocol.outputs import EngineSend, RadiusChanged


def test_outputs_are_taken_once_in_order() -> None:
    pending = EngineOutbox()
    for number in range(3):
        pending.send(number, b"x")
        pending.change(RadiusChanged(number))
        pending.log("ROUTER", INFO, str(number))
    assert pending.take_sends() == [EngineSend(number, b"x") for number in range(3)]
    assert pending.take_changes() == [RadiusChanged(number) for number in range(3)]
    assert [line.text for line in pending.take_lines()] == ["0", "1", "2"]
    assert (pending.take_sends(), pending.take_changes(), pending.take_lines()) == ([], [], [])


def test_lines_beyond_limit_are_replaced_by_one() -> None:
    pending = EngineOutbox()
    for _ in range(3 * outbox._MOST_LINES):
        pending.log("ROUTER", INFO, "line")
    lines = pending.take_lines()
    assert len(lines) == outbox._MOST_LINES + 1
    assert (lines[-1].level, "were dropped" in lines[-1].text) == (WARNING, True)
    pending.log("ROUTER", INFO, "later")
    assert [line.text for line in pending.take_lines()] == ["later"]


def test_text_is_logged_once_even_after_it_was_taken() -> None:
    pending = EngineOutbox()
    for text in ("one", "two", "one"):
        pending.log_once("ROUTER", INFO, text)
        pending.log_once("ROUTER", INFO, text)
    assert [line.text for line in pending.take_lines()] == ["one", "two"]
    pending.log_once("ROUTER", INFO, "one")
    assert pending.take_lines() == []


def test_texts_of_peers_cannot_fill_memory() -> None:
    pending = EngineOutbox()
    pending.log_once("ROUTER", INFO, "x" * 1_000_000)
    (line,) = pending.take_lines()
    assert len(line.text) == outbox._LONGEST + 1
    for number in range(2 * outbox._MOST_LINES):
        pending.log_once("ROUTER", INFO, str(number))
        pending.take_lines()
    pending.log_once("ROUTER", INFO, "new")
    assert pending.take_lines() == []
