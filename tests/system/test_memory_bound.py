"""What a connection may hold (maxBufferedMegabytes), and what happens when others wait at that bound."""

from tests.peer import message
from tests.system.fixtures import Connect, Fresh
from tests.system.router import Router, Section, listener, poll

SECTIONS: list[Section] = [listener("bounded", maxBufferedMegabytes=1)]
#: Octets: more than the window of a session lets in.
ENDLESS = 40_000_000
#: Seconds until a sender that is not let on counts as such.
SHUT = 1.0


def test_at_the_bound_the_link_that_fills_it_ends_and_others_go_on(
    connect: Connect, fresh: Fresh, router: Router
) -> None:
    stuck, alive = fresh(), fresh()
    deaf = connect()
    deaf.begin(incoming_window=0).receiver(stuck, credit=5)
    receiver = connect().receiver(alive, 5)
    peer = connect("bounded")
    filling, sender = peer.sender(stuck), peer.sender(alive)
    assert not filling.send_some(message.data(bytes(ENDLESS)), SHUT)
    condition = filling.wait_detached()
    assert condition is not None
    assert condition[0] == "amqp:resource-limit-exceeded"
    number = sender.send(message.message("goes on"))
    receiver.next().settle()
    assert sender.outcome(number).name == "accepted"
    poll(lambda: "nothing else could go on" in router.log, "a line in the log says so")
