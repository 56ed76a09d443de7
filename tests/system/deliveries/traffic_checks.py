"""Invariants of a run of random traffic (`check`)."""

from __future__ import annotations

from collections import defaultdict

from tests.system.deliveries.traffic import ReceivedMessage, SendState, SentMessage, TrafficRecord

#: Number of breaches shown of each kind.
SHOWN = 3


def check(record: TrafficRecord, calm: tuple[str, ...], multicast: str) -> None:
    """Raise AssertionError naming the breaches of these invariants:

    - No thread failed, and no content was changed.
    - Every unsettled message whose link stayed has exactly one outcome, which is the outcome its receiver sent.
    - Every accepted message has arrived.
    - No message arrives twice at a receiver; a message of an anycast address arrives at one receiver only.
    - Numbers of messages from one link to another increase.
    - At addresses that begin with `calm`, whose receivers stay and grant credit, all messages arrive, even presettled.

    Messages to addresses that begin with `multicast` may have several receivers.
    """
    arrived: dict[tuple[str, int], list[ReceivedMessage]] = defaultdict(list)
    for got in record.got:
        arrived[got.link, got.number].append(got)
    breaches = [*record.faults]
    breaches += _breach("without outcome", _without_outcome(record))
    breaches += _breach("accepted and missing", _missing(record, arrived))
    breaches += _breach("told otherwise than answered", _wrong_outcomes(record, multicast))
    breaches += _breach("arrived twice", _duplicates(record, arrived, multicast))
    breaches += _breach("out of order", _out_of_order(record))
    breaches += _breach("lost although their consumers grant credit", _lost(record, arrived, calm))
    assert not breaches, "\n".join(breaches)


def _breach(what: str, found: list[str]) -> list[str]:
    return [f"{len(found)} {what}: " + "; ".join(found[:SHOWN])] if found else []


def _without_outcome(record: TrafficRecord) -> list[str]:
    return [f"{sent}" for sent, state in record.sent.items() if not (sent.settled or state.orphaned or state.settled)]


def _missing(record: TrafficRecord, arrived: dict[tuple[str, int], list[ReceivedMessage]]) -> list[str]:
    return [
        f"{sent}"
        for sent, state in record.sent.items()
        if state.outcome == "accepted" and (sent.link, sent.number) not in arrived
    ]


def _wrong_outcomes(record: TrafficRecord, multicast: str) -> list[str]:
    """Find outcomes that differ from the receiver's.

    An anycast outcome is the receiver's; the router's own are released (not sent) and modified (receiver lost).
    """

    def wrong(sent: SentMessage, state: SendState) -> bool:
        answers = record.answered.get((sent.link, sent.number), [])
        if not state.settled or sent.address.startswith(multicast):
            return False
        if state.outcome == "released":
            return bool(answers) and answers != ["released"]
        return state.outcome != "modified" and answers != [state.outcome]

    return [
        f"{sent}: {state.outcome}, answered {record.answered.get((sent.link, sent.number))}"
        for sent, state in record.sent.items()
        if wrong(sent, state)
    ]


def _duplicates(
    record: TrafficRecord, arrived: dict[tuple[str, int], list[ReceivedMessage]], multicast: str
) -> list[str]:
    found = []
    for sent in record.sent:
        places = [got.receiver for got in arrived.get((sent.link, sent.number), [])]
        if len(set(places)) != len(places) or (len(places) > 1 and not sent.address.startswith(multicast)):
            found.append(f"{sent} at {places}")
    return found


def _out_of_order(record: TrafficRecord) -> list[str]:
    found: list[str] = []
    last: dict[tuple[str, str], int] = {}
    for got in record.got:
        before = last.get((got.link, got.receiver), -1)
        if got.number < before:
            found.append(f"{got} after {before}")
        last[got.link, got.receiver] = got.number
    return found


def _lost(
    record: TrafficRecord, arrived: dict[tuple[str, int], list[ReceivedMessage]], calm: tuple[str, ...]
) -> list[str]:
    return [
        f"{sent}"
        for sent, state in record.sent.items()
        if sent.address.startswith(calm) and (sent.link, sent.number) not in arrived and not state.orphaned
    ]
