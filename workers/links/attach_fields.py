"""Fields that routers add to the attach of a routed link, and fields that they remove (inter-router.md 12; decision
0012).

Between two Sluice routers, the attach keeps all that the client wrote. Its last link property is the route: the id of
the router that has the container, then the ids of the routers passed. A router of Dispatch 1.19 gets what it would
pass on itself. Containers and clients never see the route.
"""

from typing import Final

from sluice.router.amqp.codec import (
    decode,
    decode_one,
    encode_described,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_ubyte,
    encode_ulong,
)
from sluice.workers.links.attach import (
    DESIRED,
    INCOMPLETE,
    MAX_SIZE,
    OFFERED,
    PROPERTIES,
    RCV_FIRST,
    RCV_MODE,
    SND_MIXED,
    SND_MODE,
    SOURCE_FIELD,
    UNSETTLED,
)
from sluice.workers.links.encoded import NULL
from sluice.workers.links.terminus import SOURCE, PeerTerminus

ROUTE: Final = "sluice.route"
MAX_ROUTE_LENGTH: Final = 2048  # most routers on a route
_KEY: Final = encode_symbol(ROUTE)
_MAPS: Final = {0xC1: 3, 0xD1: 9}  # number of octets before the first key
_DEFAULT_OUTCOME: Final = 8  # position in a source


def route_of(properties: bytes) -> list[str]:
    """Return the route that a Sluice router added to link properties; empty if there is no valid one."""
    if _KEY not in properties:
        return []
    found = [decode_one(value) for key, value in _pairs(properties) if key == _KEY]
    route = found[-1] if found else None
    if not isinstance(route, list) or len(route) > MAX_ROUTE_LENGTH or not all(isinstance(each, str) for each in route):
        return []
    return [str(each) for each in route]


def with_route(properties: bytes, route: list[str]) -> bytes:
    """Return link properties with this route. An empty route restores what the client wrote."""
    if not route and _KEY not in properties:
        return properties
    items = [item for key, value in _pairs(properties) if key != _KEY for item in (key, value)]
    if route:
        items += [_KEY, encode_list([encode_string(router) for router in route])]
    return encode_map(items) if items else NULL


def with_node_address(properties: bytes, address: str) -> bytes:
    """Return properties of a dynamic node with the address replaced. The address is the first property.

    brokers-and-edge.md LR-18.
    """
    (key, _), *others = _pairs(properties)
    return encode_map([key, encode_string(address), *(item for pair in others for item in pair)])


def leave_out(items: list[bytes]) -> None:
    """Remove the fields of an attach that routers of Dispatch 1.19 do not pass on."""
    items[SND_MODE], items[RCV_MODE] = encode_ubyte(SND_MIXED), encode_ubyte(RCV_FIRST)
    for field in (UNSETTLED, INCOMPLETE, OFFERED, DESIRED, PROPERTIES):
        items[field] = NULL
    items[MAX_SIZE] = encode_ulong(0)
    source = PeerTerminus(items[SOURCE_FIELD])
    if source.code == SOURCE and len(source.items) > _DEFAULT_OUTCOME:
        values = list(source.items)
        values[_DEFAULT_OUTCOME] = NULL
        items[SOURCE_FIELD] = encode_described(SOURCE, values)


def _pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return keys and values of an encoded map, each still encoded. Raises RemoteError."""
    at = _MAPS.get(raw[0], len(raw))
    found = []
    while at < len(raw):
        middle = decode(raw, at)[1]
        end = decode(raw, middle)[1]
        found.append((raw[at:middle], raw[middle:end]))
        at = end
    return found
