"""Storm of reconnecting edge routers: `python -m loadtests.edge_storm PORT COUNT ADDRESSES SECONDS`.

Each is one connection that sends the attaches of an edge router in one write: its own eight links, and a consumer of
each of its addresses. It stays until all are attached. They connect evenly within SECONDS. One process has prepared
the octets of all, so that it takes little CPU from the router. The last output is a line of JSON: the seconds until
all links were answered, and the longest time that an edge router waited for its own.
"""

from __future__ import annotations

import json
import selectors
import sys
import time

from loadtests.storm import (
    ATTACH,
    BEGIN,
    FALSE,
    HEADER,
    NULL,
    OPEN,
    SOURCE,
    TARGET,
    TRUE,
    WITH_SASL,
    StormClient,
    frame,
)
from sluice.router.amqp.codec import encode_described, encode_map, encode_string, encode_symbol, encode_uint

PATIENCE = 60.0  # seconds for all edge routers
DOWNLINK = "qd.router-edge-downlink"
OWN_LINKS = 8
PREFIX = WITH_SASL[: -len(frame(OPEN, encode_string("storm")))]


def terminus(code: int, address: str | None = None, dynamic: bool = False, capability: str | None = None) -> bytes:
    """Encode a source or a target."""
    fields = [NULL if address is None else encode_string(address), NULL, NULL, NULL, TRUE if dynamic else FALSE]
    if capability is not None:
        fields += [NULL] * ((10 if code == SOURCE else 6) - len(fields)) + [encode_symbol(capability)]
    return encode_described(code, fields)


def attach(name: str, handle: int, receives: bool, source: bytes, target: bytes) -> bytes:
    fields = [encode_string(name), encode_uint(handle), TRUE if receives else FALSE, NULL, NULL, source, target]
    return frame(ATTACH, *fields, *([] if receives else [NULL, NULL, encode_uint(0)]))


def edge(number: int, addresses: int) -> bytes:
    """Encode everything that an edge router sends at its start."""
    name = f"E{number}"
    properties = encode_map([encode_symbol("qd.annotations-version"), encode_uint(1)])
    opened = frame(OPEN, encode_string(name), *[NULL] * 8, properties)
    begun = frame(BEGIN, NULL, encode_uint(0), encode_uint(1000), encode_uint(1000))
    down = terminus(SOURCE, name, capability=DOWNLINK), terminus(TARGET, capability=DOWNLINK)
    links = [
        (False, terminus(SOURCE), terminus(TARGET)),
        (True, *down),
        (True, terminus(SOURCE, "_$qd.edge_addr_tracking"), terminus(TARGET)),
        *((False, terminus(SOURCE), terminus(TARGET, service)) for service in ("$management", "_$qd.addr_lookup")),
        *((True, terminus(SOURCE, dynamic=True), terminus(TARGET)) for _ in range(2)),
        (False, terminus(SOURCE), terminus(TARGET, "_$qd.edge_heartbeat")),
        *((True, terminus(SOURCE, f"crowd/{name}/{each}"), terminus(TARGET)) for each in range(addresses)),
    ]
    attached = [attach(f"{name}/{handle}", handle, *link) for handle, link in enumerate(links)]
    return PREFIX + opened + begun + b"".join(attached)


class ConnectingEdge:
    """Connecting edge router. The router's frames are only counted."""

    def __init__(self, port: int, octets: bytes, links: int) -> None:
        self.began = time.monotonic()
        self.client = StormClient(port)
        self.client.send(octets)
        self.missing = links
        self._rest = b""

    def look(self) -> bool:
        """Read input; return True if all links are attached. Raises EOFError."""
        octets = self.client.receive()
        if not octets:
            raise EOFError(f"the router has closed a connection that waited for {self.missing} attaches")
        octets, at = self._rest + octets, 0
        while len(octets) - at >= HEADER:
            header = octets[at : at + 4] == b"AMQP"
            length = HEADER if header else int.from_bytes(octets[at : at + 4], "big")
            if len(octets) - at < length:
                break
            self.missing -= octets[at + HEADER : at + HEADER + 3] == bytes((0, 0x53, ATTACH))
            at += length
        self._rest = octets[at:]
        return self.missing <= 0


def come(port: int, count: int, addresses: int, seconds: float) -> tuple[float, float]:
    """Connect all edge routers. Return the seconds until all are attached, and the longest wait of one."""
    prepared = [edge(number, addresses) for number in range(count)]
    selector = selectors.DefaultSelector()
    here: list[StormClient] = []
    began, longest, next_one = time.monotonic(), 0.0, 0
    while len(here) < count:
        now = time.monotonic()
        if now - began > PATIENCE:
            raise TimeoutError(f"{count - len(here)} of {count} edge routers are not there after {PATIENCE:g} s")
        while next_one < count and now - began >= next_one * seconds / count:
            one = ConnectingEdge(port, prepared[next_one], OWN_LINKS + addresses)
            selector.register(one.client.socket, selectors.EVENT_READ, one)
            next_one += 1
        for key, _ in selector.select(seconds / count):
            one = key.data
            if one.look():
                longest = max(longest, time.monotonic() - one.began)
                selector.unregister(one.client.socket)
                here.append(one.client)
    taken = time.monotonic() - began
    for client in here:
        client.reset()
    return taken, longest


def main() -> None:
    port, count, addresses = map(int, sys.argv[1:4])
    taken, longest = come(port, count, addresses, float(sys.argv[4]))
    print(json.dumps({"seconds": taken, "longest": longest}))


if __name__ == "__main__":
    main()
