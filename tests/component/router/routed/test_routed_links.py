"""Routed links between client and container, with both ends on one worker or on two."""

import pytest

from sluice.router.log import LogSettings, ModuleSettings
from tests.component.engine.routed_ends import (
    LOST,
    ROUTED,
    ScriptedRouteContainer,
    connect_ends,
    link_route,
    routed_ends,
    sending,
    transfer_out,
)
from tests.peer.frames import ACCEPTED, AMQP_HEADER, RELEASED, source, target
from tests.peer.talk import (
    consumer,
    flow,
    frames,
    message,
    messages,
    of,
    producer,
    say,
    settle,
    transfer,
)
from tests.peer.types import Described, Raw, Symbol, UByte, ULong

__all__ = ["routed_ends"]

#: Deliveries of a routed link in flight or unsettled. docs/user/link-routes.md, Memory.
ROUTED_MOST = 10_000


def first_part():
    return say("transfer", payload=b"abc", handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True)


def logged(router, text):
    """Return the lines of the router's log that contain this text."""
    return [entry.text for entry in router.log.recent() if text in entry.text]


# brokers-and-edge.md LR-13, LR-15, LR-16.
def test_attach_is_relayed_and_answered_by_container(routed_ends):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a", snd_settle_mode=UByte(1), properties={Symbol("p"): "x"}))
    router.settle()
    assert frames(client) == []
    attach = container.accept(max_message_size=ULong(77), offered_capabilities=[Symbol("cap")])
    assert attach.fields["name"] == "p0@test"
    assert (attach.role, attach.snd_settle_mode, attach.properties) == (False, 1, {"p": "x"})
    router.settle()
    (answer,) = frames(client)
    assert (answer.fields["name"], answer.handle, answer.max_message_size) == ("p0", 0, 77)


# brokers-and-edge.md LR-20, LR-22.
def test_credit_deliveries_and_outcomes_are_relayed(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    heard = frames(client)
    assert [frame.name for frame in heard] == ["attach", "flow"]
    assert (heard[1].link_credit, heard[1].delivery_count) == (10, 0)
    state = Described(ULong(0x34), [b"txn"])
    client.feed(
        say("transfer", payload=message(b"one"), handle=0, delivery_id=0, delivery_tag=b"tag-of-more-than-8",
            message_format=3, state=state)
    )  # fmt: skip
    router.settle()
    (frame,) = of(frames(container.peer), "transfer")
    assert (frame.delivery_tag, frame.message_format, frame.payload) == (b"tag-of-more-than-8", 3, message(b"one"))
    assert frame.state == state
    container.say("disposition", role=True, first=frame.delivery_id, state=ACCEPTED)
    (outcome,) = of(frames(client), "disposition")
    assert (outcome.first, outcome.settled or False, outcome.state) == (0, False, ACCEPTED)
    client.feed(settle(0, role=False, state=ACCEPTED))
    router.settle()
    (settled,) = of(frames(container.peer), "disposition")
    assert (settled.role, settled.first, settled.settled) == (False, frame.delivery_id, True)


# brokers-and-edge.md LR-26.
def test_detach_is_answered_after_container(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    client.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert frames(client) == []
    (detach,) = of(frames(container.peer), "detach")
    assert detach.closed
    container.say("detach", handle=40, closed=True)
    (answer,) = frames(client)
    assert (answer.name, answer.closed) == ("detach", True)


# brokers-and-edge.md LR-27.
@pytest.mark.parametrize("how", ["lose", "end", "close"])
def test_loss_of_container_detaches_clients_link(routed_ends, how):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    if how == "lose":
        container.peer.lose()
    elif how == "end":
        container.say("end")
    else:
        container.peer.feed(say("close"))
    router.settle()
    (detach,) = frames(client)
    assert (detach.name, detach.closed, detach.error.value[1]) == ("detach", True, LOST)


# brokers-and-edge.md LR-27.
def test_loss_of_client_detaches_containers_link(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    client.lose()
    router.settle()
    (detach,) = of(frames(container.peer), "detach")
    assert (detach.closed, detach.error.value[1]) == (True, LOST)


# brokers-and-edge.md LR-30.
@pytest.mark.parametrize("far", [False, True])
def test_end_of_routed_links_is_logged_with_counters(routers, far):
    log = LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")})
    ends = router, container, client = connect_ends(routers, far, log=log)
    sending(ends)
    assert len(logged(router, "Link attached: dir=")) == 2
    client.feed(say("detach", handle=0, closed=True))
    router.settle()
    container.say("detach", handle=40, closed=True)
    router.settle()
    counters = "del=0 presett=0 psdrop=0 acc=0 rej=0 rel=0 mod=0 delay1=0 delay10=0 blocked=no"
    assert [line.partition("] Link ")[2] for line in logged(router, "del=")] == [f"closed: {counters}"] * 2


# brokers-and-edge.md LR-29.
def test_end_of_clients_session_detaches_containers_link(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    client.feed(say("end"))
    router.settle()
    (detach,) = of(frames(container.peer), "detach")
    assert (detach.closed, detach.error.value[1]) == (True, LOST)
    assert [(frame.name, frame.error) for frame in frames(client)] == [("end", None)]


# brokers-and-edge.md LR-11.
def test_attach_without_container_is_refused(routed_ends):
    router, container, client = routed_ends
    container.peer.lose()
    router.settle()
    client.feed(consumer(0, "queue.a"))
    router.settle()
    attach, detach = frames(client)
    assert attach.source is None
    assert detach.error.value[0] == "qd:no-route-to-dest"


# brokers-and-edge.md LR-21.
def test_drain_is_relayed_both_ways(routed_ends):
    router, container, client = routed_ends
    client.feed(consumer(0, "queue.a", 0))
    container.accept()
    router.settle()
    client.feed(flow(0, 5, drain=True))
    router.settle()
    asked = of(frames(container.peer), "flow")[-1]
    assert (asked.link_credit, asked.drain) == (5, True)
    container.peer.feed(transfer_out(0))
    container.flow(40, 0, count=5, drain=True)
    heard = frames(client)
    assert [frame.name for frame in heard][-2:] == ["transfer", "flow"]
    assert (heard[-1].delivery_count, heard[-1].link_credit, heard[-1].drain) == (5, 0, True)


# brokers-and-edge.md LR-25.
def test_large_messages_are_relayed_by_frame_and_wait_for_window(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    container.peer.blocked = True
    body = bytes(range(256)) * 4000
    client.feed(transfer(0, 0, message(body)))
    router.settle()
    container.peer.blocked = False
    router.settle()
    assert messages(frames(container.peer)) == [message(body)]


def test_shut_window_stops_sender_without_loss(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends, credit=3000)
    container.say("flow", next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    body = b"x" * 15000
    sent = window = 0
    heard = of(frames(client), "flow")
    while heard:
        window = heard[-1].next_incoming_id + heard[-1].incoming_window
        while sent < window:
            client.feed(transfer(0, sent, message(body + b"%d" % sent), settled=True))
            sent += 1
        router.settle()
        heard = of(frames(client), "flow")
    assert sent == window < 3000
    assert of(frames(container.peer), "transfer") == []
    container.say("flow", next_incoming_id=0, incoming_window=3000, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    router.settle()
    assert messages(frames(container.peer)) == [message(body + b"%d" % number) for number in range(sent)]
    assert of(frames(client), "flow")[-1].incoming_window > 0


def test_detach_does_not_overtake_deliveries(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends, credit=1000)
    container.say("flow", next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    for number in range(40):
        client.feed(transfer(0, number, message(b"y" * 15000), settled=True))
    client.feed(say("detach", handle=0, closed=True))
    router.settle()
    assert of(frames(container.peer), "detach") == []
    container.say("flow", next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    heard = frames(container.peer)
    assert len(messages(heard)) == 40
    assert heard[-1].name == "detach"


# brokers-and-edge.md LR-24.
def test_outcomes_with_text_and_ranges_are_relayed(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    for number in range(6):
        client.feed(transfer(0, number, message(b"m")))
    router.settle()
    frames(container.peer)
    txn = Described(ULong(0x34), [b"txn", RELEASED])
    rejected = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a:b"), "why", {Symbol("k"): 1}])])
    container.say("disposition", role=True, first=0, last=2, settled=True, state=ACCEPTED)
    container.say("disposition", role=True, first=3, settled=True, state=txn)
    container.say("disposition", role=True, first=4, settled=True, state=rejected)
    container.say("disposition", role=True, first=5, state=Described(ULong(0x23), [ULong(1), ULong(2)]))
    heard = [(f.first, f.last, f.settled or False, f.state) for f in of(frames(client), "disposition")]
    assert heard == [
        (0, 2, True, ACCEPTED),
        (3, None, True, txn),
        (4, None, True, rejected),
        (5, None, False, Described(ULong(0x23), [ULong(1), ULong(2)])),
    ]


def test_aborted_delivery_is_aborted_at_container(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    client.feed(first_part())
    router.settle()
    (first,) = of(frames(container.peer), "transfer")
    assert (first.more, first.payload) == (True, b"abc")
    client.feed(say("transfer", handle=0, aborted=True))
    router.settle()
    (last,) = of(frames(container.peer), "transfer")
    assert last.aborted


# brokers-and-edge.md LR-25.
def test_client_lost_within_message_aborts_it(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(container.peer)
    client.feed(first_part())
    router.settle()
    client.lose()
    router.settle()
    heard = [(frame.name, frame.fields.get("aborted") or False) for frame in frames(container.peer)]
    assert heard == [("transfer", False), ("transfer", True), ("detach", False)]


def empty(number, **fields):
    """Return a transfer frame without payload."""
    return say("transfer", handle=0, delivery_id=number, delivery_tag=b"e%d" % number, message_format=number, **fields)


# brokers-and-edge.md LR-18a, LR-23.
@pytest.mark.parametrize("frames_of_it", [1, 2, 3])
@pytest.mark.parametrize("settled", [None, True])
def test_delivery_without_octets_is_rejected_and_credit_returned(routed_ends, frames_of_it, settled):
    router, container, client = routed_ends
    sending(routed_ends, credit=3)
    frames(client)
    parts = [empty(0, settled=settled, more=True)] + [say("transfer", handle=0, more=True)] * (frames_of_it - 2)
    if frames_of_it == 1:
        client.feed(empty(0, settled=settled))
    else:
        client.feed(b"".join(parts) + say("transfer", handle=0))
    client.feed(transfer(0, 1, message(b"x")))
    router.settle()
    (seen,) = of(frames(container.peer), "transfer")
    assert (seen.delivery_id, seen.payload) == (0, message(b"x")), "the container has seen nothing of it"
    heard = frames(client)
    (credit,) = of(heard, "flow")
    assert (credit.delivery_count, credit.link_credit) == (1, 3)
    refused = [(each.first, each.settled, each.state) for each in of(heard, "disposition")]
    why = Described(ULong(0x1D), [Symbol("amqp:decode-error"), "invalid message format"])
    assert refused == ([] if settled else [(0, True, Described(ULong(0x25), [why]))])
    container.say("disposition", role=True, first=0, settled=True, state=ACCEPTED)
    (outcome,) = of(frames(client), "disposition")
    assert (outcome.first, outcome.state) == (1, ACCEPTED)


@pytest.mark.parametrize("empties", [1, 2])
def test_empty_first_frame_is_relayed_when_octets_follow(routed_ends, empties):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(container.peer)
    state = Described(ULong(0x34), [b"txn"])
    client.feed(empty(7, more=True, state=state, batchable=True))
    client.feed(say("transfer", handle=0, more=True) * (empties - 1))
    router.settle()
    assert frames(container.peer) == []
    client.feed(say("transfer", handle=0, more=True, payload=b"abc"))
    client.feed(say("transfer", handle=0, payload=b"def", delivery_id=7))
    router.settle()
    first, *others = of(frames(container.peer), "transfer")
    assert (first.delivery_tag, first.message_format, first.state, first.batchable) == (b"e7", 7, state, True)
    assert first.payload + b"".join(each.payload for each in others) == b"abcdef"
    container.say("disposition", role=True, first=first.delivery_id, settled=True, state=ACCEPTED)
    (outcome,) = of(frames(client), "disposition")
    assert (outcome.first, outcome.settled, outcome.state) == (7, True, ACCEPTED)


def test_delivery_settled_before_first_octet_is_relayed(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(container.peer)
    client.feed(empty(0, more=True) + settle(0, role=False))
    client.feed(say("transfer", handle=0, payload=b"abc"))
    router.settle()
    (seen,) = of(frames(container.peer), "transfer")
    assert (seen.payload, seen.settled) == (b"abc", True)


@pytest.mark.parametrize("how", ["abort", "detach", "lose"])
def test_delivery_ended_before_first_octet_is_not_relayed(routed_ends, how):
    router, container, client = routed_ends
    sending(routed_ends, credit=3)
    frames(client)
    client.feed(empty(0, more=True))
    if how == "lose":
        client.lose()
    else:
        client.feed(say("transfer", handle=0, aborted=True) if how == "abort" else say("detach", handle=0))
    router.settle()
    heard = frames(container.peer)
    assert of(heard, "transfer") == []
    if how == "abort":
        (credit,) = frames(client)
        assert (credit.name, credit.delivery_count, credit.link_credit) == ("flow", 1, 3)
    else:
        assert heard[-1].name == "detach"


def test_resumed_delivery_may_be_empty(routed_ends):
    """A resumed delivery is not incomplete: the frame only reports its outcome."""
    router, container, client = routed_ends
    sending(routed_ends)
    frames(container.peer)
    client.feed(empty(0, resume=True, state=ACCEPTED, settled=True))
    router.settle()
    (seen,) = of(frames(container.peer), "transfer")
    assert (seen.resume, seen.state, seen.settled, seen.payload) == (True, ACCEPTED, True, b"")


# RabbitMQ grants 65,536 credits without a delivery-count, and no more until half of them are used.
@pytest.mark.parametrize("initial", [0, 0xFFFFFFF0])
@pytest.mark.parametrize("known", [False, True], ids=["no-count", "count"])
def test_credit_held_back_is_granted_once_deliveries_are_settled(routed_ends, initial, known):
    router, container, client = routed_ends
    sent = ROUTED_MOST // 2 + 1
    sending(routed_ends, ROUTED_MOST + 500, initial if known else None, initial_delivery_count=initial)
    granted = of(frames(client), "flow")[-1]
    assert (granted.delivery_count, granted.link_credit) == (initial, ROUTED_MOST)
    for number in range(sent):
        client.feed(transfer(0, number, message(b"x")))
    router.settle()
    assert {each.handle for each in of(frames(client), "flow")} == {None}, "flows of the session only"
    container.say("disposition", role=True, first=0, last=sent - 1, settled=True, state=ACCEPTED)
    last = of(frames(client), "flow")[-1]
    assert (last.delivery_count, last.link_credit) == (initial, ROUTED_MOST + 500)


def test_sender_goes_on_while_receiver_keeps_most_deliveries_unsettled(routed_ends):
    router, container, client = routed_ends
    kept, sent = ROUTED_MOST - 100, 0
    sending(routed_ends, 3 * ROUTED_MOST)
    credit = of(frames(client), "flow")[-1].link_credit
    for _ in range(5):
        for number in range(sent, sent + credit):
            client.feed(transfer(0, number, message(b"x")))
        sent += credit
        router.settle()
        container.say("disposition", role=True, first=0, last=sent - kept - 1, settled=True, state=ACCEPTED)
        last = [each for each in of(frames(client), "flow") if each.handle is not None][-1]
        credit = last.delivery_count + last.link_credit - sent
        assert credit == ROUTED_MOST - kept


def last_flow(peer):
    return [each for each in of(frames(peer), "flow") if each.handle is not None][-1]


def send_all(client, first, last, **fields):
    client.feed(b"".join(transfer(0, number, message(b"x"), **fields) for number in range(first, last)))


# AMQP 1.0 part 2, 2.6.7: link-credit is the last known value if it is not set.
@pytest.mark.parametrize("count", [None, 0, 10])
def test_flow_without_link_credit_keeps_credit_held_back(routed_ends, count):
    router, container, client = routed_ends
    sending(routed_ends, 2 * ROUTED_MOST)
    send_all(client, 0, ROUTED_MOST)
    router.settle()
    container.flow(40, None, count, echo=True)
    container.say("disposition", role=True, first=0, last=ROUTED_MOST - 1, settled=True, state=ACCEPTED)
    last = last_flow(client)
    assert last.delivery_count + last.link_credit > ROUTED_MOST + ROUTED_MOST // 2


@pytest.mark.parametrize("ahead", [1, ROUTED_MOST + 1, 0x7FFFFFF0])
def test_count_of_receiver_ahead_of_sender_grants_no_more_than_bound(routed_ends, ahead):
    _, _, client = routed_ends
    initial = 0xFFFFFFF0
    sending(routed_ends, 0xFFFFFFFF, (initial + ahead) & 0xFFFFFFFF, initial_delivery_count=initial)
    last = last_flow(client)
    assert (last.delivery_count, last.link_credit) == (initial, ROUTED_MOST)


@pytest.mark.parametrize("used", [0, ROUTED_MOST // 2 + 1], ids=["none-used", "half-used"])
def test_credit_given_back_for_drain_is_counted_once(routed_ends, used):
    router, container, client = routed_ends
    sending(routed_ends, 2 * ROUTED_MOST, drain=True)
    frames(client)
    given_back = ROUTED_MOST
    if used:
        send_all(client, 0, used)
        router.settle()
        container.say("disposition", role=True, first=0, last=used - 1, settled=True, state=ACCEPTED)
        # The sender gives back the first credit, and then that of the flow that has crossed.
        client.feed(flow(0, 0, delivery_count=given_back, drain=True))
        router.settle()
        assert last_flow(container.peer).delivery_count < 2 * ROUTED_MOST
        crossed = last_flow(client)
        given_back = crossed.delivery_count + crossed.link_credit
        assert given_back > ROUTED_MOST
    client.feed(flow(0, 0, delivery_count=given_back, drain=True))
    router.settle()
    answer = last_flow(container.peer)
    assert (answer.delivery_count, answer.link_credit) == (2 * ROUTED_MOST, 0)
    container.flow(40, 7, count=answer.delivery_count)
    last = last_flow(client)
    assert last.delivery_count + last.link_credit == given_back + 7


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("initial", [0, 0xFFFFFFF0])
def test_sender_that_ignores_credit_is_detached(routed_ends, settled, initial):
    router, container, client = routed_ends
    sending(routed_ends, 10, initial, initial_delivery_count=initial)
    frames(client)
    send_all(client, 0, ROUTED_MOST + 10, settled=settled)
    router.settle()
    assert not of(frames(client), "detach")
    client.feed(flow(0, 0x7FFFFFFF, delivery_count=(initial + ROUTED_MOST + 10) & 0xFFFFFFFF))
    client.feed(transfer(0, ROUTED_MOST + 10, message(b"x"), settled=settled))
    router.settle()
    (detach,) = of(frames(client), "detach")
    assert detach.error.value[0] == "amqp:link:transfer-limit-exceeded"
    assert len(of(frames(container.peer), "transfer")) == ROUTED_MOST + 10


def test_transfers_for_withdrawn_credit_are_within_the_bound(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends, ROUTED_MOST)
    container.flow(40, 0)
    send_all(client, 0, 2 * ROUTED_MOST, settled=True)
    router.settle()
    assert not of(frames(client), "detach")
    assert len(of(frames(container.peer), "transfer")) == 2 * ROUTED_MOST


# AMQP 1.0 part 2, 2.6.7: without a delivery-count, credit counts from the initial one.
@pytest.mark.parametrize("count", [0, None])
def test_delivery_with_too_long_tag_is_refused_and_credit_returned(routed_ends, count):
    router, container, client = routed_ends
    sending(routed_ends, 3, count)
    frames(client)
    tag = b"t" * 33
    client.feed(say("transfer", payload=message(b"x"), handle=0, delivery_id=0, delivery_tag=tag, message_format=0))
    router.settle()
    assert of(frames(container.peer), "transfer") == []
    refused, credit = frames(client)
    assert (refused.settled, refused.state.value[0].value[1]) == (True, "delivery tag length exceeded")
    assert (credit.delivery_count, credit.link_credit) == (1, 3)


def test_refusal_by_container_reaches_client(routed_ends):
    _, container, client = routed_ends
    client.feed(producer(0, "queue.a"))
    container.accept(target=None)
    error = Described(ULong(0x1D), [Symbol("amqp:not-found"), "no queue"])
    container.say("detach", handle=40, closed=True, error=error)
    attach, detach = frames(client)
    assert attach.target is None
    assert (detach.closed, detach.error.value) == (True, ["amqp:not-found", "no queue"])


def test_crossing_detaches_end_both_links(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(client)
    frames(container.peer)
    client.feed(say("detach", handle=0, closed=True))
    container.peer.feed(say("detach", channel=ROUTED, handle=40, closed=True))
    router.settle()
    assert [frame.name for frame in frames(client)] == ["detach"]
    assert [frame.name for frame in frames(container.peer)] == ["detach"]


def test_client_may_detach_before_container_answers(routed_ends):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a") + say("detach", handle=0, closed=True))
    router.settle()
    attach = container.accept()
    container.say("detach", handle=40 + attach.handle, closed=True)
    assert [frame.name for frame in frames(client)] == ["attach", "detach"]


@pytest.mark.parametrize("moment", ["at once", "answered"])
def test_client_lost_before_answer_leaves_no_link(routed_ends, moment):
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a"))
    if moment == "answered":
        router.settle()
    client.lose()
    router.settle()
    names = [frame.name for frame in frames(container.peer)]
    assert names in ([], ["begin"], ["begin", "attach", "detach"])


def test_subscription_outlives_its_client(routed_ends):
    router, container, client = routed_ends
    durable = Described(ULong(0x28), ["queue.a", None, Symbol("never")])
    client.feed(say("attach", name="sub", handle=0, role=True, source=durable, target=target()))
    container.accept()
    client.lose()
    router.settle()
    (detach,) = of(frames(container.peer), "detach")
    assert (detach.closed or False, detach.error.value[1]) == (False, LOST)


def test_attaches_rotate_over_containers(routed_ends):
    router, container, client = routed_ends
    other = ScriptedRouteContainer(router, 0)
    for number in range(4):
        client.feed(producer(number, "queue.a"))
    router.settle()
    for each in (container, other):
        heard = frames(each.peer)
        # the router knows no channel-max of the container yet, so it sends one attach
        assert len(of(heard, "attach")) == 1
        (opened,) = of(heard, "begin")
        each.say("begin", remote_channel=opened.channel, next_outgoing_id=0, incoming_window=9, outgoing_window=9)
        assert len(of(frames(each.peer), "attach")) == 1


# brokers-and-edge.md LR-17.
def test_link_route_rewrites_address_prefixes(routed_ends):
    router, container, client = routed_ends
    route = link_route("in", "ext", delete_prefix="ext.", add_prefix="jms.")
    router.core.link_routes.replace((route,))
    client.feed(producer(0, "ext.q"))
    attach = container.accept()
    assert attach.target.value[0] == "jms.q"
    (answer,) = frames(client)
    assert answer.target.value[0] == "ext.q"


def test_coordinator_has_its_own_link_route(routed_ends):
    router, container, client = routed_ends
    coordinator = Described(ULong(0x30), [Symbol("amqp:local-transactions")])
    attach = say(
        "attach", name="c", handle=0, role=False, source=source(), target=coordinator, initial_delivery_count=0
    )
    client.feed(attach)
    router.settle()
    assert frames(client)[1].error.value[0] == "amqp:precondition-failed"
    client.feed(say("detach", handle=0, closed=True))
    router.core.link_routes.replace((link_route("in", "$coordinator"),))
    client.feed(attach)
    assert container.accept().target == coordinator


def test_delivery_settled_by_last_waiting_frame_is_settled_once(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    client.feed(first_part())
    router.settle()
    (first,) = of(frames(container.peer), "transfer")
    container.say("flow", next_incoming_id=0, incoming_window=0, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    client.feed(say("transfer", payload=b"def", handle=0, settled=True))
    router.settle()
    container.say("flow", next_incoming_id=1, incoming_window=9, next_outgoing_id=0, outgoing_window=0x7FFFFFFF)
    (last,) = of(frames(container.peer), "transfer")
    assert (last.payload, last.settled) == (b"def", True)
    frames(client)
    container.say("disposition", role=True, first=first.delivery_id, settled=True, state=ACCEPTED)
    assert of(frames(client), "disposition") == []


def test_unreadable_state_is_not_relayed_over_routed_link(routed_ends):
    router, container, client = routed_ends
    sending(routed_ends)
    frames(container.peer)
    broken = Raw(b"\x00\x53\x25\xc0\x06\x01\xa1\x03\x92\x92\x92")
    client.feed(say("transfer", payload=b"x", handle=0, delivery_id=0, delivery_tag=b"t", state=broken))
    router.settle()
    assert of(frames(client), "close")[0].error.value[0] == "amqp:decode-error"
    assert [frame.name for frame in frames(container.peer)] == ["detach"]


def test_state_longer_than_peers_frame_is_reduced_to_kind(routed_ends):
    router, container, client = routed_ends
    short = router.connect(container.peer.worker.setup.worker, "broker")
    container.peer.lose()
    router.settle()
    container.peer = short
    short.feed(AMQP_HEADER + say("open", container_id="broker", max_frame_size=512))
    router.settle()
    frames(short)
    sending(routed_ends)
    state = Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("c"), "why " * 200])])
    client.feed(
        say("transfer", payload=message(b"one"), handle=0, delivery_id=0, delivery_tag=b"t", message_format=0,
            state=state)
    )  # fmt: skip
    router.settle()
    heard = of(frames(short), "transfer")
    assert [frame.state for frame in heard] == [Described(ULong(0x25), [])]
    assert b"".join(frame.payload for frame in heard) == message(b"one")
