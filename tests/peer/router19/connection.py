"""Inter-router connection: its sessions, control links, priority links and streaming links (inter-router.md 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peer import frames
from tests.peer.frames import Frame
from tests.peer.router19.deliveries import Incoming
from tests.peer.router19.encoding import (
    CONTROL,
    DATA,
    PRIORITIES,
    attach_octets,
    fresh_name,
    open_octets,
    router_attach,
)
from tests.peer.router19.transport import Router19Endpoint, Router19Link, Router19Session
from tests.peer.types import Described, Symbol

if TYPE_CHECKING:
    from tests.peer.router19.router import Router19

FORBIDDEN = ("qd:connection-role", "Link attach forbidden on inter-router connection")


class InterRouterConnection(Router19Endpoint):
    """Connection to another router."""

    def __init__(
        self, router: Router19, connector: bool, hostname: str | None, cost: int, number: int, mechanism: str
    ) -> None:
        super().__init__(connector, hostname, mechanism)
        self.router = router
        self.own_cost = cost
        self.cost = cost
        self.number = number
        self.control_out: Router19Link | None = None
        self.control_in: Router19Link | None = None
        self.data_out: list[Router19Link] = []
        self.data_in: list[Router19Link] = []
        self.streams: list[Router19Link] = []
        self.idle_streams: list[Router19Link] = []
        self._stream_session: Router19Session | None = None
        self._routed_session: Router19Session | None = None
        #: Number of unsettled deliveries by address key.
        self.outstanding: dict[str, int] = {}

    def entered(self) -> Any:
        return self.router.world.entered()

    def open_octets(self) -> bytes:
        failover = None if self.connector else self.router.failover
        return open_octets(self.router.id, self.number, self.hostname, self.own_cost, self.router.idle_ms, failover)

    def next_tag(self) -> bytes:
        return self.router.next_tag()

    @property
    def peer(self) -> str | None:
        """Container-id of the peer."""
        return None if self.remote_open is None else str(self.remote_open.container_id)

    def on_open(self) -> None:
        assert self.remote_open is not None
        properties = self.remote_open.properties or {}
        proposed = properties.get("qd.inter-router-cost")
        self.cost = max(self.own_cost, int(proposed) if proposed is not None else 1)
        if self.connector:
            self._set_up()

    def _set_up(self) -> None:
        """Begin all sessions, then attach all links."""
        sessions = [self.begin(channel) for channel in range(PRIORITIES + 1)]
        for session in sessions:
            capability = CONTROL if session is sessions[0] else DATA
            for handle, receiver in ((0, True), (1, False)):
                name = fresh_name()
                self.attach(session, name, receiver, router_attach(name, handle, receiver, capability), handle)

    # --- links -------------------------------------------------------------------------------------------------------

    def on_attach(self, link: Router19Link, frame: Frame, fresh: bool) -> None:
        mine = frame.target if link.receiver else frame.source
        link.capability = _capability(mine)
        if link.routed is not None:
            link.routed.relay_attach(link, frame)
        elif link.capability in (CONTROL, DATA):
            link.kind = "control" if link.capability == CONTROL else "data"
            if fresh:
                octets = router_attach(link.name, link.handle, link.receiver, link.capability, answer=True)
                self.send(octets, link.session.channel)
            self._take(link, fresh)
        elif fresh:
            self._endpoint(link, frame)

    def _take(self, link: Router19Link, fresh: bool) -> None:
        """Register an attached router link."""
        if link.kind == "control":
            if link.receiver:
                self.control_in = link
            else:
                self.control_out = link
        elif link.receiver:
            self.data_in.append(link)
        elif not fresh and link in self.streams:
            pass
        else:
            self.data_out.append(link)
        if link.receiver:
            link.grant()

    def _endpoint(self, link: Router19Link, frame: Frame) -> None:
        """Handle an attach of the peer that is not a router link: route it if the peer is a router, otherwise refuse
        it."""
        if self.control_out is None:
            self._refuse(link, *FORBIDDEN)
        elif link.receiver and frames.terminus(frame.target).get("address") is None:
            octets = attach_octets(link.name, link.handle, True, frame.source, frame.target)
            self.send(octets, link.session.channel)
            link.kind = "data"
            link.grant()
        else:
            self.router.links.route(self, link, frame)

    def refuse(self, link: Router19Link, condition: str, description: str) -> None:
        """Answer an attach with a null terminus, then detach."""
        self._refuse(link, condition, description)

    def _refuse(self, link: Router19Link, condition: str, description: str) -> None:
        remote = link.remote
        assert remote is not None
        source, target = (remote.source, None) if link.receiver else (None, remote.target)
        self.send(attach_octets(link.name, link.handle, link.receiver, source, target), link.session.channel)
        link.detach(frames.error(condition, description))

    def data_link(self, priority: int) -> Router19Link | None:
        """Return the link for a priority, or the nearest lower one."""
        usable = [link for link in self.data_out[: priority + 1] if not link.detached]
        return usable[-1] if usable else None

    def stream_link(self) -> Router19Link:
        """Return an idle streaming link, or a new one."""
        if self.idle_streams:
            return self.idle_streams.pop()
        if self._stream_session is None:
            self._stream_session = self.begin(self._free_channel())
        session = self._stream_session
        name, handle = fresh_name(), session.fresh_handle()
        link = self.attach(session, name, False, router_attach(name, handle, False, DATA), handle)
        self.streams.append(link)
        link.idle = lambda: self.idle_streams.append(link)  # type: ignore[method-assign]
        return link

    def routed_link(self, name: str, receiver: bool, source: Any, target: Any) -> Router19Link:
        """Attach a routed link on the session for routed links."""
        if self._routed_session is None:
            self._routed_session = self.begin(self._free_channel())
        session = self._routed_session
        handle = session.fresh_handle()
        return self.attach(session, name, receiver, attach_octets(name, handle, receiver, source, target), handle)

    def _free_channel(self) -> int:
        return next(number for number in range(len(self.sessions) + 1) if number not in self.sessions)

    # --- events ------------------------------------------------------------------------------------------------------

    def on_transfer(self, link: Router19Link, incoming: Incoming) -> None:
        if link.routed is not None:
            link.routed.relay_delivery(link, incoming)
        elif link.kind == "control":
            self.router.handle_control_delivery(self, incoming)
        else:
            self.router.forward.handle_delivery(incoming, link)

    def on_flow(self, link: Router19Link, frame: Frame) -> None:
        if link.routed is not None:
            link.routed.relay_flow(link, frame)
        else:
            link.pump()

    def on_detach(self, link: Router19Link, frame: Frame) -> None:
        if link.routed is not None:
            link.routed.relay_detach(link, frame)
            return
        was = link.detached
        link.detach(closed=True)
        if not was:
            link.fail()
        if link is self.control_out:
            self.control_out = None
            self.router.engine.connection_lost(self)
        elif link is self.control_in:
            self.control_in = None

    def on_lost(self) -> None:
        for session in self.sessions.values():
            for link in session.links:
                if link.routed is not None:
                    link.routed.end_after_loss(link)
        self.control_out = None
        self.router.connection_lost(self)


def _capability(terminus: Described | None) -> str | None:
    """Return the capability of a terminus if it is a single symbol."""
    found = frames.terminus(terminus).get("capabilities")
    return str(found) if isinstance(found, Symbol) else None
