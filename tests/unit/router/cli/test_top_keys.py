"""Keys, tables and the network page of `sluice top`."""

import pytest

from sluice.router.cli.client import Row
from sluice.router.cli.top_line import Frame, cell_len, frame_lines
from sluice.router.cli.top_network import NetworkSample, render_network
from sluice.router.cli.top_state import HELP, NETWORK, ROUTER, TopState
from sluice.router.cli.top_table import NAME, NUMBER, FittedTable, cut
from sluice.router.cli.top_view import render_frame, render_help, render_status
from tests.unit.router.cli.test_top_view import link, sample


def lines(frame: Frame, width: int) -> list[str]:
    """Return the lines of a frame on a terminal of this width."""
    shown = [line.text for line in frame_lines(frame, width)]
    assert max(map(cell_len, shown)) <= width
    return shown


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("short", 10, "short"), ("abcdefghij", 7, "abc…hij"), ("abcdefghij", 6, "abc…ij"), ("地址地址地址", 7, "地…地址")],
)
def test_long_text_is_cut_in_the_middle(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert cell_len(cut(text, width)) <= width


@pytest.mark.parametrize("width", [60, 80, 130])
def test_numbers_stay_whole_beside_long_name(width: int) -> None:
    table = FittedTable("T", [("address", NAME), ("in/s", NUMBER), ("total", NUMBER)])
    table.add_row("x" * 150 + "end", "12,345", "9,999,999")
    (row,) = [line for line in lines([table], width) if "12,345" in line]
    assert row.endswith("9,999,999")
    assert "end" in row
    assert len(row) <= width


def test_links_with_long_names_show_their_numbers() -> None:
    now = sample(2.0, link(1, owningAddr="M0" + "a" * 150, linkName="n" * 90, deliveryCount=7777, creditAvailable=55))
    (row,) = [line for line in lines(render_frame(now, now, 10), 110) if "7,777" in line]
    assert "55" in row
    assert "a…a" in row


def test_filter_and_scroll_choose_links() -> None:
    now = sample(2.0, *(link(number, deliveryCount=number) for number in range(20)))

    def shown(state: TopState) -> list[str]:
        found = [line.split() for line in lines(render_frame(now, now, 3, state), 200)]
        return [words[3] for words in found if len(words) > 3 and words[2] == "in" and words[3] != "-"]

    assert shown(TopState()) == ["q19", "q18", "q17"]
    assert shown(TopState(offset=2)) == ["q17", "q16", "q15"]
    assert shown(TopState(offset=99)) == ["q2", "q1", "q0"]
    assert shown(TopState(sort="name")) == ["q0", "q1", "q10"]
    assert shown(TopState(filter="Q7")) == ["q7"]


def test_keys_change_state() -> None:
    state = TopState()
    assert not state.press("s")
    assert state.sort == "total"
    state.offset = 1
    state.press("\x1b[B")
    assert state.offset == 2
    state.press("k")
    assert state.offset == 1
    state.press("n")
    assert state.page == NETWORK
    state.press("n")
    assert state.page == ROUTER
    state.press("?")
    assert state.page == HELP
    assert state.press("q")


def test_filter_is_typed_until_enter_and_cleared_by_escape() -> None:
    state = TopState(offset=4)
    state.press("/")
    assert not state.press("qxy\x7f")  # q is a letter now
    assert "filter: qx_" in render_status(state).text
    state.press("\r")
    assert (state.filter, state.typing, state.offset) == ("qx", None, 0)
    assert "filter: qx" in render_status(state).text
    state.press("\x1b")
    assert state.filter == ""
    state.press("/")
    assert state.press("\x03")


def test_help_lists_keys() -> None:
    assert any("sort addresses" in line for line in lines(render_help(), 100))


def test_network_page_shows_rates_and_silent_router() -> None:
    def router(total: int) -> Row:
        return {
            "id": "A", "mode": "interior", "version": "1", "connectionCount": 3, "linkCount": 4,
            "deliveriesIngress": total, "deliveriesEgress": 0, "deliveriesTransit": 0, "uptimeSeconds": 1,
            "memoryUsage": 1 << 20,
        }  # fmt: skip

    nodes: dict[str, Row] = {"A": {"nextHop": "(self)", "cost": None}, "B": {"nextHop": "C", "cost": 2}}
    before = NetworkSample(1.0, nodes, {"A": router(0), "B": None})
    now = NetworkSample(3.0, nodes, {"A": router(200), "B": None})
    shown = lines(render_network(now, before, 10, TopState()), 160)
    assert shown[0] == "routers: 2, without an answer: 1"
    (own,) = [line.split() for line in shown if line.startswith("A ")]
    assert own[6] == "100"
    (silent,) = [line for line in shown if line.startswith("B ")]
    assert "no answer" in silent
    assert silent.split()[-2:] == ["C", "2"]
