"""Checks: on each arrival, after all parties behave, and at the end of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtests.liveness import frames
from loadtests.liveness.consumer import ConsumerRole, InLink
from loadtests.liveness.ledger import STREAM, LedgerMessage
from loadtests.liveness.links import PartyLink, Role
from loadtests.liveness.neighbour import NeighbourConsumer
from loadtests.liveness.producer import OutLink, ProducerRole
from loadtests.liveness.routers import CAPACITY

if TYPE_CHECKING:
    from loadtests.liveness.round import LivenessRound

#: Credit of a routed link beyond which the router may delay passing it on.
ROUTED_CREDIT = 5000


def in_order(round_: LivenessRound, message: LedgerMessage, link: InLink | NeighbourConsumer) -> None:
    """Check that messages of one producer's link reach a consumer in the order in which they were sent."""
    if round_.routers.hop and message.size >= STREAM // 8:
        return  # large messages may overtake others between routers
    key = (message.uid, id(message.link))
    before = link.order.get(key)
    link.order[key] = message.number
    if before is not None and before > message.number:
        round_.fault(f"{link}: {message} came behind message {before}")


def _expected(role: Role) -> bool:
    """Return True if the role must be served."""
    return not role.grudge and not role.gone


def _paired(round_: LivenessRound, role: Role) -> Role | None:
    """Return the other end of a routed link."""
    return next((one for one in round_.roles.values() if one is not role and one.address is role.address), None)


def not_attached(round_: LivenessRound) -> list[str]:
    """Describe the links that should be attached, and are not."""
    found = []
    for role in round_.roles.values():
        if role.behind:
            continue
        if _expected(role) or not round_.calm:
            link = role.link
            if link is None or not link.up:
                found.append(f"{role.name} of {role.address} is not attached")
    return found


def standing(round_: LivenessRound) -> list[str]:
    """Describe the unfinished work; empty when all is complete."""
    found = not_attached(round_)
    messages: dict[int, list[LedgerMessage]] = {}
    for message in round_.ledger:
        if not message.done and not message.settled:
            messages.setdefault(message.uid, []).append(message)
    for role in round_.roles.values():
        if not _expected(role) or role.link is None or not role.link.up:
            continue
        if isinstance(role, ProducerRole):
            assert isinstance(role.link, OutLink)
            found += _producer(round_, role, role.link, messages.get(role.spec.uid, []))
        elif isinstance(role, ConsumerRole):
            assert isinstance(role.link, InLink)
            if role.link.unsettled or role.link.current is not None:
                part = ", one in parts" if role.link.current is not None else ""
                found.append(f"{role.link} has {len(role.link.unsettled)} unsettled{part}")
            elif role.link.draining:
                found.append(f"{role.link} has no answer to its drain")
    return found + _settled_ones(round_) + (round_.behind.standing() if round_.behind is not None else [])


def _producer(round_: LivenessRound, role: ProducerRole, link: OutLink, messages: list[LedgerMessage]) -> list[str]:
    found = []
    if link.current is not None:
        found.append(f"{link} is in the middle of {link.current}: {link.at} octets written{_why(link)}")
    elif role.left:
        found.append(f"{link} has {role.left} messages to send, credit {link.credit}{_why(link)}")
    mine = [message for message in messages if message.link is link and message.sent and not message.aborted]
    if mine:
        found.append(f"{link}: no outcome of {len(mine)}, the first is {mine[0]}")
    if found:
        return found
    if role.address.kind in ("in", "out"):
        other = _paired(round_, role)
        end = other.link if other is not None else None
        if isinstance(end, InLink) and end.up:
            away = end.limit % frames.MODULUS
            credit = end.credit
            if min(link.credit, ROUTED_CREDIT) != min(credit, ROUTED_CREDIT):
                found.append(f"{link} has credit {link.credit} of {credit} (to {away})")
    elif link.credit != CAPACITY:
        found.append(f"{link} has credit {link.credit} of {CAPACITY}")
    return found


def _why(link: OutLink) -> str:
    session = link.session
    return f" (session window {session.out_window}, {len(session.connection.out)} octets wait for the socket)"


def _settled_ones(round_: LivenessRound) -> list[str]:
    """Describe presettled messages that must have arrived, and have not."""
    found = []
    for message in round_.ledger:
        address = message.address
        if not message.settled or not message.sent or message.aborted or address.grudge or address in round_.upset:
            continue
        if address.kind == "multicast":
            continue
        if not message.arrivals and (message.link.up or message.link.clean):
            found.append(f"{message} has not arrived")
    return found


def ledger(round_: LivenessRound) -> list[str]:
    """Check the ledger after all work has completed. Return the faults."""
    found = []
    for message in round_.ledger:
        if not message.done or message.settled:
            continue
        unicast = message.address.kind != "multicast"
        if message.outcome == "accepted" and not message.arrivals:
            found.append(f"{message} is accepted, and arrived nowhere")
        if message.address in round_.upset or message.address.grudge or message.aborted or not message.sent:
            continue
        if unicast and not message.arrivals:
            found.append(f"{message} is {message.outcome}, although nobody has seen it and nobody left")
        elif unicast and message.reported and message.outcome != message.reported[-1]:
            found.append(f"{message} is {message.outcome} to its producer, and {message.reported[-1]} by its consumer")
    for text in found[:10]:
        round_.log(f"FAULT: {text}")
    return found


def holding(round_: LivenessRound) -> list[str]:
    """Describe content and deliveries that routers hold although nothing is in flight."""
    found = []
    for number, gauges in enumerate(round_.routers.gauges()):
        for name in ("undelivered", "unsettled", "busy", "buffered", "in_rings"):
            if gauges[name]:
                found.append(f"router {number}: {name} {gauges[name]}")
    return found or [f"{name} {value:.0f}" for name, value in round_.routers.held().items()]


def describe(round_: LivenessRound) -> None:
    """Write the state of parties and routers to the history."""
    lines = []
    for connection in round_.connections.values():
        lines.append(f"{connection}: {'' if connection.sock else 'not '}connected, {len(connection.out)} octets wait")
        for session in connection.sessions.values():
            lines.append(
                f"  {session}: it takes {session.out_window} frames, we take {session.in_window}"
                + (", shut" if session.shut else "")
            )
            lines += [f"    {_line(link)}" for link in session.links.values()]
    for number in range(len(round_.routers.routers)):
        lines.append(f"router {number}: dropped since its start: {round_.routers.drops()[number]}")
        for row in round_.routers.query(number, "router.link"):
            if (
                row["undeliveredCount"]
                or row["unsettledCount"]
                or (row["linkType"] in ("endpoint", "router-data") and not row["creditAvailable"])
            ):
                keys = ("linkName", "linkDir", "owningAddr", "undeliveredCount", "unsettledCount", "creditAvailable")
                lines.append(f"router {number}: " + ", ".join(f"{key} {row.get(key)}" for key in keys))
    round_.history += [f"          {line}" for line in lines]


def _line(link: PartyLink) -> str:
    state = "up" if link.up else "not attached"
    if isinstance(link, OutLink):
        return (
            f"{link.role.name} {link.role.address}: {state}, credit {link.credit}, {len(link.unsettled)} unsettled, "
            f"{link.role.left} to send" + (f", {link.at} of {len(link.octets)} octets written" if link.current else "")
        )
    assert isinstance(link, InLink)
    return f"{link.role.name} {link.role.address}: {state}, credit {link.credit}, {len(link.unsettled)} unsettled"
