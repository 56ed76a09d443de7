"""Orders that wait for a session, and the channels that stay reserved."""

from types import SimpleNamespace
from typing import Any

import pytest

from sluice.router.amqp.errors import RESOURCE_LIMIT, RemoteError
from sluice.router.control import messages as control
from sluice.router.control import pair_messages
from sluice.workers.connections.sessions import RouterSessions, begin_session


def link_order(reference: int) -> control.Link:
    return control.Link(conn=1, ref=reference, dir="out", name=f"l{reference}", address="a")


def pair_order(pair: int) -> pair_messages.Pair:
    return pair_messages.Pair(
        conn=1, pair=pair, identity=pair, outgoing=True, name=f"p{pair}", worker=0, epoch=1, slot=1, gen=1,
        survives=False, address="a", answer=("", ""), group="g",
    )  # fmt: skip


@pytest.fixture
def sessions() -> RouterSessions:
    """Sessions with two orders of each kind, all with the numbers 1 and 2."""
    made = RouterSessions()
    for order in (link_order(1), pair_order(1), link_order(2), pair_order(2)):
        made.wait(order)
    return made


def waiting(sessions: RouterSessions) -> list[str]:
    return [order.name for order in sessions.take_waiting()]


def test_waiting_orders_are_taken_once_in_order(sessions: RouterSessions) -> None:
    assert waiting(sessions) == ["l1", "p1", "l2", "p2"]
    assert waiting(sessions) == []


def test_cancelled_link_leaves_pair_of_the_same_number(sessions: RouterSessions) -> None:
    sessions.cancel_link(1)
    assert waiting(sessions) == ["p1", "l2", "p2"]


def test_cancelled_pair_leaves_link_of_the_same_number(sessions: RouterSessions) -> None:
    sessions.cancel_pair(2)
    assert waiting(sessions) == ["l1", "p1", "l2"]


def test_cancelling_an_unknown_order_changes_nothing(sessions: RouterSessions) -> None:
    sessions.cancel_link(9)
    sessions.cancel_pair(9)
    assert len(waiting(sessions)) == 4


@pytest.mark.parametrize("left", [0, 1, 2])
def test_session_is_not_begun_on_reserved_channels(left: int) -> None:
    client: Any = SimpleNamespace(connection=SimpleNamespace(channels_left=lambda: left))
    with pytest.raises(RemoteError, match="reserved for other sessions") as refused:
        begin_session(client, 2)
    assert refused.value.condition == RESOURCE_LIMIT
