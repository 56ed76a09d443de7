"""Link-route proxies: an edge router asks its interior router to create link routes for its own containers
(inter-router.md 14.7; brokers-and-edge.md ED-20). No I/O here."""

import itertools
import math
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from sluice.supervisor.edge import messages
from sluice.supervisor.edge.messages import ManagementAnswer
from sluice.supervisor.linkroutes.local import LinkAddress, LocalLinkRoutes
from sluice.supervisor.runtime.waker import Waker

TIMEOUT: Final = 10.0  # seconds for an answer
RETRY: Final = 2.0  # seconds after a request that failed
NEVER: Final = math.inf
_CREATED: Final = 201
_GONE: Final = (204, 404)
_PREFIXES: Final = ("C", "D")
_CREATE: Final = "create"
_DELETE: Final = "delete"


class _RouteProxyState(Enum):
    ABSENT = "absent"  # unknown to the interior router
    ASKED = "asked"  # a request to create or delete it is unanswered
    PRESENT = "present"


class _RouteProxy:
    """Link route that the interior router has, or is to have, for local containers. Owner: `RouteProxies`."""

    __slots__ = ("direction", "due", "identity", "key", "name", "pattern", "request", "state", "wanted")

    def __init__(self, address: LinkAddress, router_id: str) -> None:
        self.key = address.key
        self.name = f"{router_id}/proxyLinkRoute/{address.key}"
        self.pattern = f"{address.key[1:]}/#" if address.key[0] in _PREFIXES else address.key[1:]
        self.direction = address.direction
        self.wanted = True
        self.state = _RouteProxyState.ABSENT
        self.identity = ""  # management identity at the interior router
        self.request = ("", "")  # correlation-id and operation of the last request
        self.due = 0.0  # monotonic time: timeout of the unanswered request, or the earliest time for the next one


class RouteProxies:
    """All link-route proxies. Owner: the uplink."""

    def __init__(self, router_id: str, link_routes: LocalLinkRoutes, waker: Waker) -> None:
        self._router_id = router_id
        self._waker = waker
        self._proxies: dict[str, _RouteProxy] = {}  # by key of the address
        self._requests: dict[str, _RouteProxy] = {}  # by correlation-id
        self._numbers = itertools.count(1)
        self._reply_to = ""
        self._send: Callable[[bytes], bool] | None = None
        self._link_routes = link_routes
        self._serves = False

    def use(self, reply_to: str, send: Callable[[bytes], bool]) -> None:
        """Send requests to an interior router from now on."""
        self._reply_to, self._send = reply_to, send

    def lost(self) -> None:
        """Forget the state of all link routes, which the interior router deleted with the lost uplink."""
        self._send = None
        self._requests.clear()
        for key, proxy in list(self._proxies.items()):
            proxy.state, proxy.due = _RouteProxyState.ABSENT, 0.0
            if not proxy.wanted:
                del self._proxies[key]

    def serve(self, wanted: bool) -> None:
        """Create link routes at the interior router for the local ones, or delete all of them."""
        if wanted == self._serves:
            return
        self._serves = wanted
        for proxy in self._proxies.values():
            proxy.wanted = False
        for address in self._link_routes.addresses():
            self.changed(address)
        self._waker.wake()

    def changed(self, address: LinkAddress) -> None:
        """Handle a link-route address that has got its first container, or lost its last one."""
        if not self._serves:
            return
        proxy = self._proxies.get(address.key)
        if address.connections:
            if proxy is None:
                proxy = self._proxies[address.key] = _RouteProxy(address, self._router_id)
            proxy.wanted = True
        elif proxy is not None:
            proxy.wanted = False
        self._waker.wake()

    def step(self) -> None:
        """Send the requests that are due."""
        if self._send is None or not self._proxies:
            return
        now = time.monotonic()
        for key, proxy in list(self._proxies.items()):
            if proxy.state is _RouteProxyState.ASKED and proxy.due <= now:
                self._requests.pop(proxy.request[0], None)
                proxy.state = _RouteProxyState.ABSENT if proxy.request[1] == _CREATE else _RouteProxyState.PRESENT
            if proxy.state is _RouteProxyState.ASKED or proxy.due > now:
                continue
            if proxy.wanted and proxy.state is _RouteProxyState.ABSENT:
                self._ask(proxy, _CREATE, now)
            elif not proxy.wanted and proxy.state is _RouteProxyState.PRESENT:
                self._ask(proxy, _DELETE, now)
            elif not proxy.wanted:
                del self._proxies[key]

    def _ask(self, proxy: _RouteProxy, what: str, now: float) -> None:
        assert self._send is not None
        correlation_id = f"client-{int(time.time()):016x}{next(self._numbers) & 0xFFFFFFFF:08x}"
        if what == _CREATE:
            octets = messages.create_link_route(
                proxy.name, proxy.pattern, proxy.direction, self._reply_to, correlation_id
            )
        else:
            octets = messages.delete_link_route(proxy.name, proxy.identity, self._reply_to, correlation_id)
        if not self._send(octets):
            proxy.due = now + RETRY
            return
        proxy.request = (correlation_id, what)
        proxy.state, proxy.due = _RouteProxyState.ASKED, now + TIMEOUT
        self._requests[correlation_id] = proxy

    def answered(self, answer: ManagementAnswer) -> None:
        """Apply the interior router's answer to a request."""
        proxy = self._requests.pop(answer.correlation_id, None)
        if proxy is None:
            return
        created = proxy.request[1] == _CREATE
        done = answer.status == _CREATED and answer.identity is not None if created else answer.status in _GONE
        proxy.due = 0.0 if done else time.monotonic() + RETRY
        if created == done:
            proxy.state = _RouteProxyState.PRESENT
            proxy.identity = answer.identity or proxy.identity
        else:
            proxy.state = _RouteProxyState.ABSENT
        self._waker.wake()

    @property
    def deadline(self) -> float:
        """Monotonic time at which `step` must send a request or treat one as failed."""
        if self._send is None or not self._proxies:
            return NEVER
        waiting = (
            proxy.due
            for proxy in self._proxies.values()
            if proxy.state is _RouteProxyState.ASKED or proxy.wanted != (proxy.state is _RouteProxyState.PRESENT)
        )
        return min(waiting, default=NEVER)
