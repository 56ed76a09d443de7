"""Both ends of a routed link in one process with the router: a scripted container and a client."""

import pytest

from sluice.router.config.entities import LinkRouteConfig
from tests.peer.frames import AMQP_HEADER
from tests.peer.talk import flow, frames, message, of, producer, say, start

ROUTED = 7  # channel of the container for the router's session
LOST = "Connectivity to the peer container was lost"


def link_route(direction, prefix="queue", **more):
    fields = {"pattern": None, "add_prefix": None, "delete_prefix": None, "connection": None, **more}
    name = f"{prefix}-{direction}"
    return LinkRouteConfig(
        name=name, identity=name, prefix=prefix, direction=direction, container_id="broker", **fields
    )


class ScriptedRouteContainer:
    """Scripted broker to which link routes lead."""

    def __init__(self, router, worker):
        self.router = router
        self.peer = router.connect(worker, "broker")
        self.peer.feed(AMQP_HEADER + say("open", container_id="broker"))
        router.settle()
        frames(self.peer)

    def accept(self, **fields):
        """Answer the router's begin, if it is new, and its attach. Return the attach."""
        self.router.settle()
        heard = frames(self.peer)
        begins = of(heard, "begin")
        if begins:
            self.channel = begins[0].channel
            self.peer.feed(
                say("begin", channel=ROUTED, remote_channel=self.channel, next_outgoing_id=0,
                    incoming_window=0x7FFFFFFF, outgoing_window=0x7FFFFFFF)
            )  # fmt: skip
        (attach,) = of(heard, "attach")
        if attach.role:
            fields = {"initial_delivery_count": 0, **fields}
        self.say(
            "attach", **{"name": attach.fields["name"], "handle": 40 + attach.handle, "role": not attach.role,
                         "source": attach.source, "target": attach.target,
                         **fields}
        )  # fmt: skip
        return attach

    def say(self, performative, **fields):
        self.peer.feed(say(performative, channel=ROUTED, **fields))
        self.router.settle()

    def flow(self, handle, credit, count=0, **fields):
        self.peer.feed(flow(handle, credit, delivery_count=count, channel=ROUTED, **fields))
        self.router.settle()


@pytest.fixture(params=["near", "far"])
def routed_ends(request, routers):
    return connect_ends(routers, request.param == "far")


def connect_ends(routers, far, **options):
    """Return (router, container, client), on one worker or on two."""
    router = routers(workers=2 if far else 1, **options)
    router.core.link_routes.replace((link_route("in"), link_route("out")))
    container = ScriptedRouteContainer(router, 1 if far else 0)
    client = router.connect(0)
    client.feed(start())
    router.settle()
    frames(client)
    return router, container, client


def sending(routed_ends, credit=10, count=0, *, drain=None, **fields):
    """Attach a client's sender to the container, which grants credit with this delivery-count.

    The handles are 0 (client) and 40 (container).
    """
    router, container, client = routed_ends
    client.feed(producer(0, "queue.a", **fields))
    attach = container.accept()
    router.settle()
    container.flow(40, credit, count, drain=drain)
    return attach


def transfer_out(number, **fields):
    return say("transfer", channel=ROUTED, payload=message(b"m%d" % number), handle=40, delivery_id=number,
               delivery_tag=b"%d" % number, message_format=0, **fields)  # fmt: skip
