"""Record of a link: its slot, its route through the worker's table, and its end.

routing-semantics.md 4, brokers-and-edge.md LR-30.
"""

from typing import TYPE_CHECKING, Final

from sluice.router.addressing.address import MOBILE
from sluice.router.amqp.errors import INTERNAL_ERROR, LocalError
from sluice.router.amqp.session import Session
from sluice.router.control import messages as control
from sluice.router.delivery.anonymous_handler import AnonymousHandler
from sluice.router.delivery.peer_message_handler import PeerMessageHandler
from sluice.router.delivery.producer_origin import ProducerOrigin
from sluice.router.delivery.router_handler import RouterHandler
from sluice.router.delivery.targeted_handler import TargetedHandler
from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.links.producer_link import DeliveryHandler, ProducerLink
from sluice.router.log import INFO
from sluice.router.tracing.tracer import SpanFacts
from sluice.workers.links.record_state import TRANSITIONS, RecordEvent, RecordState
from sluice.workers.links.terminus import PeerTerminus
from sluice.workers.slots import Slot

if TYPE_CHECKING:
    from sluice.router.policy.messages import MessageRules
    from sluice.router.table.table import ForwardingAddress
    from sluice.workers.connections.handler import ConnectionHandler
    from sluice.workers.links.routed import RoutedEnd

# Handlers of links that carry messages of clients.
MESSAGE_HANDLERS: Final = (AnonymousHandler, RouterHandler, TargetedHandler)

IN: Final[control.Direction] = "in"
OUT: Final[control.Direction] = "out"


class LinkRecord:
    """Record of a link whose deliveries the worker forwards by its table. Owner: the connection handler."""

    __slots__ = (
        "address",
        "client",
        "ends",
        "identity",
        "link",
        "number",
        "outgoing",
        "route",
        "slot",
        "source",
        "span_facts",
        "state",
        "target",
    )

    slot: Slot  # set by `enter`

    def __init__(
        self,
        client: "ConnectionHandler",
        number: int,
        link: ConsumerLink | ProducerLink,
        outgoing: bool,
        source: PeerTerminus | None = None,
        target: PeerTerminus | None = None,
        *,
        identity: int = 0,
    ) -> None:
        """Create the record of an engine's link that is in no session yet. outgoing: deliveries leave by the link.
        source, target: termini of the attach, if known yet. identity: number of the link in the log; 0: none yet."""
        self.client = client
        self.number = number
        self.link = link
        self.outgoing = outgoing
        self.identity = identity
        self.source = source
        self.target = target
        self.address: int | None = None
        self.route: DeliveryHandler | None = None
        self.ends: tuple[str, str] | None = None  # addresses of source and target if messages are logged
        self.state: RecordState = "new"
        self.span_facts: SpanFacts | None = None  # made with the first span of the link
        link.context = self

    def advance(self, event: RecordEvent) -> None:
        """Apply an event to the state. Raises LocalError if the state excludes the event."""
        after = TRANSITIONS[self.state].get(event)
        if after is None:
            text = f"record of link {self.link.name}: {event} in the state {self.state}"
            raise LocalError("link", INTERNAL_ERROR, text)
        self.state = after

    @property
    def ended(self) -> bool:
        """True if the link was detached or lost."""
        return self.state == "ended"

    @property
    def producer_link(self) -> ProducerLink:
        """The link, on which the peer sends."""
        assert isinstance(self.link, ProducerLink)
        return self.link

    @property
    def consumer_link(self) -> ConsumerLink:
        """The link, on which the peer receives."""
        assert isinstance(self.link, ConsumerLink)
        return self.link

    def enter(self, session: Session, name: str, handle: int | None) -> None:
        """Give the link its slot and its handle in a session. handle: the peer's; None: the peer has not attached.
        Raises RemoteError if there is no room for it."""
        client = self.client
        self.slot = client.worker.enter_link(
            session, self.link, name, handle, incoming=not self.outgoing, container=client.role.route_container
        )

    def attached(self, answer: control.Attached) -> None:
        """Store the identity that the supervisor has given the link."""
        self.identity = answer.identity
        self.span_facts = None

    def make_span_facts(self) -> SpanFacts:
        """Keep and return the facts that spans of the link name. Whoever changes one of them sets `span_facts` to
        None."""
        address = self.traced_address()
        made = self.client.worker.tracing.spans.facts(self, address)
        if address is not None or self.address is None:  # otherwise the table does not have the address yet
            self.span_facts = made
        return made

    def traced_address(self) -> str | None:
        """Return the address that spans of the link name; None if it is not known yet, or if the messages of the link
        name their addresses."""
        address = None if self.address is None else self.client.worker.table.get(self.address)
        return None if address is None else address.key[2 if address.key.startswith(MOBILE) else 1 :]

    # -- use ----------------------------------------------------------------------------------------------------------

    def origin(self) -> ProducerOrigin:
        """Return the facts about the connection that hold for all messages of the link."""
        client = self.client
        return ProducerOrigin(
            honour=not client.profile.strip_annotations_in,
            tenant=client.policy.tenant,
            container=client.role.route_container,
            rules=self.rules(),
            edge=client.role.edge,
            mark=client.role.edge_mark,
            checks=client.role.checks,
        )

    def anonymous_handler(self) -> AnonymousHandler:
        """Return a route for messages that each name their address."""
        return AnonymousHandler(self.client.worker.table, self.origin())

    def start_flow(self, route: AnonymousHandler | PeerMessageHandler) -> None:
        """Let deliveries arrive that do not share an address."""
        self.use_route(route)
        link = self.producer_link
        link.decided()
        link.set_flowing(True)

    def bind(self, address: "ForwardingAddress | None", answer: control.Attached) -> None:
        """Let deliveries flow, to or from an address (None: any)."""
        client = self.client
        if self.outgoing:
            self.link.decided()
            return
        assert address is not None
        link = self.producer_link
        self.use_route(
            TargetedHandler(
                client.worker.table,
                address,
                self.origin(),
                to=answer.to,
                phase=answer.phase,
                from_fallback=not answer.fallback,
            )
        )
        link.decided()
        client.worker.table.bind_producer(address, link, answer.fallback)

    def rules(self) -> "MessageRules | None":
        """Return the policy rules for messages on the link; None: there are none."""
        return self.client.policy.rules

    def remember_ends(self, generated: str | None) -> None:
        """Keep what traces of the link's messages need. generated: address of a dynamic node."""
        if self.client.components:
            source, target = (end.address or "" for end in (self.source, self.target) if end is not None)
            if generated:
                source, target = (generated, target) if self.outgoing else (source, generated)
            self.ends = (source, target)
        self.span_facts = None
        self.client.worker.tracing.attached(self)

    def use_route(self, route: DeliveryHandler) -> None:
        """Route the deliveries that arrive on the link. route: a handler of producers."""
        self.route = route
        self.producer_link.use(route)
        if self.client.links.credit_withdrawn:
            self.withdraw_credit()

    def withdraw_credit(self) -> None:
        """Withdraw the credit of a producer of messages. Links for messages of the routers themselves keep theirs."""
        if isinstance(self.route, MESSAGE_HANDLERS) and not self.link.session.ended:
            self.producer_link.withdraw_credit()

    def forget_attach(self) -> None:
        """Drop the termini of the attach."""
        self.source = self.target = None

    def rebind(self, address: "ForwardingAddress") -> None:
        """Rebind the link to its address after the table was replaced."""
        self.span_facts = None
        self.address = address.id
        assert isinstance(self.route, TargetedHandler)
        self.route.rebind(address, self.producer_link)

    # -- end ----------------------------------------------------------------------------------------------------------

    def note_session_error(self, reason: str) -> None:
        """Ignore the reason for which the peer has ended the session: the peer knows it."""

    def confirmed(self) -> None:
        """Answer the peer's detach, since no worker has the link in its table any more."""
        self.link.answer_detach()

    def detached(self) -> bool:
        """Handle the end of the link, and drop all references to it.

        True: the peer's detach is answered when the supervisor confirms that no worker has the consumer.

        routing-semantics.md A-17.
        """
        self.advance("end")
        worker = self.client.worker
        suspended = self.outgoing and self.consumer_link.is_suspended
        try:
            if not suspended:
                self._unbind()
            last, line = describe_end(self)
        finally:
            if isinstance(self.route, PeerMessageHandler):
                self.route.drop()
            if suspended:
                worker.suspended.add(self)
            else:
                worker.release_slot(self.slot)
            self.link.context = None  # breaks a reference cycle
        confirm = self.outgoing and not suspended and worker.setup.workers > 1
        return self.client.links.forget(self, last, line, confirm=confirm)

    def may_suspend(self) -> bool:
        """Return True if deliveries for the link may wait for the return of its peer, which is lost."""
        return self.client.worker.table.is_alone(self.slot.index, self.slot.generation)

    def _unbind(self) -> None:
        """Send no more deliveries to the link, and no credit to its peer."""
        table = self.client.worker.table
        if self.outgoing:
            table.drop_consumer(self.slot.index, self.slot.generation)
        elif self.address is not None and (address := table.get(self.address)) is not None:
            table.unbind_producer(address, self.producer_link)


def describe_end(record: "LinkRecord | RoutedEnd") -> tuple[int, str | None]:
    """Return the time of the last delivery of a link that ends, and the log line about its end with its counters
    (management.md 7.6). The line is None if such lines are not written."""
    worker = record.client.worker
    link = record.link
    last, figures = worker.region.link_end(worker.setup.worker, record.slot.index)
    if not record.identity or not worker.log.enabled("ROUTER_CORE", INFO):
        return last, None
    how = "lost" if link.session.ended else "closed" if link.answer_closed else "detached"
    return last, f"[C{record.client.number}][L{record.identity}] Link {how}: {figures}"
