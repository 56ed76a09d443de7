"""State machine of link records: each pair of state and event, and the table in the documentation."""

from pathlib import Path
from typing import get_args

import pytest

from sluice.router.amqp.errors import LocalError
from sluice.router.links.consumer_link import ConsumerLink
from sluice.workers.connections.handler import ConnectionHandler
from sluice.workers.links.record import LinkRecord
from sluice.workers.links.record_state import TRANSITIONS, RecordEvent, RecordState

DOCUMENT = Path(__file__).parents[4] / "docs" / "internals" / "links.md"
STATES: tuple[RecordState, ...] = get_args(RecordState)
EVENTS: tuple[RecordEvent, ...] = get_args(RecordEvent)
FINAL = {"routed", "ended"}


@pytest.fixture
def client(routers) -> ConnectionHandler:
    handler: ConnectionHandler = routers(1).connect().client
    return handler


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_record_event_leads_to_state_of_table_or_fails(
    client: ConnectionHandler, state: RecordState, event: RecordEvent
) -> None:
    record = LinkRecord(client, 1, ConsumerLink(capacity=1), True)
    record.state = state
    after = TRANSITIONS[state].get(event)
    if after is not None:
        record.advance(event)
        assert record.state == after
        return
    with pytest.raises(LocalError, match=f": {event} in the state {state}") as error:
        record.advance(event)
    assert error.value.condition == "amqp:internal-error"
    assert record.state == state


def test_record_states_are_reachable_and_end() -> None:
    assert tuple(TRANSITIONS) == STATES
    reached = {after for events in TRANSITIONS.values() for after in events.values()}
    assert reached == set(STATES) - {"new"}
    assert {state for state, events in TRANSITIONS.items() if not events} == FINAL
    for state in STATES:
        if state not in {"new", *FINAL}:
            assert TRANSITIONS[state]["end"] == "ended"


def row(state: RecordState) -> str:
    """Return a row of the table in the document."""
    events = "; ".join(f"{event} → {after}" for event, after in TRANSITIONS[state].items())
    return f"| {state} | {events or 'none'} |"


def test_document_contains_transitions_of_records() -> None:
    table = "\n".join(["| state of a record | events, and the state after |", "| --- | --- |", *map(row, STATES)])
    assert table in DOCUMENT.read_text(), f"{DOCUMENT.name} is to have:\n{table}"
