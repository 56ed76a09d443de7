"""Encoding and decoding of the six messages of the protocol, and of SUMMARY.

inter-router.md 4, 16.3 to 16.9; inter-router-protocol.md 5.1 to 5.8. Octets here are the *tail* of a message:
properties, application properties and body. The head is handled by annotations.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.router.amqp.errors import AmqpError
from sluice.supervisor.network.protocol.annotations import ControlMessageError, section

VERSION: Final = 1
MOST_COST: Final = 2**31 - 1
TO_HELLO: Final = "amqp:/_local/qdhello"
TO_ALL_LS: Final = "amqp:/_topo/0/all/qdrouter"
TO_ALL_MOBILE: Final = "_topo/0/all/qdrouter.ma"  # without scheme, as in 1.19
# For a neighbour that does not relay the message unchanged; used only between Sluice routers.
TO_NEIGHBOUR_LS: Final = "amqp:/_local/qdrouter"
TO_NEIGHBOUR_MOBILE: Final = "amqp:/_local/qdrouter.ma"
_TREATMENTS: Final = range(5)
_INTEGERS: Final = range(-(2**63), 2**63)
_KEY_OCTETS: Final = 7  # overhead of a key: the head of its string, and its hint
_Hint = TypeVar("_Hint", bound=int | None)


def to_router_ls(router_id: str) -> str:
    return f"amqp:/_topo/0/{router_id}/qdrouter"


def to_router_mobile(router_id: str) -> str:
    return f"amqp:/_topo/0/{router_id}/qdrouter.ma"


class Hello(Struct, frozen=True):
    id: str
    version: int
    instance: int
    seen: tuple[str, ...]
    process: int = 0  # only between Sluice neighbours: differs in each process, even with the same instance


class Advertisement(Struct, frozen=True):
    """RA: the present sequences of a router."""

    id: str
    version: int
    instance: int
    ls_seq: int
    mobile_seq: int


class LinkStateRequest(Struct, frozen=True):
    """LSR: request for the link state of a router."""

    id: str
    version: int


class LinkStateUpdate(Struct, frozen=True):
    """LSU: the neighbours of router `id` with the costs of the links to them."""

    id: str
    version: int
    instance: int
    ls_seq: int
    peers: dict[str, int]
    age: int = 0  # seconds since the origin was last seen; like the next two, only between Sluice neighbours
    foreign: bool = False  # the state was requested: the origin is not Sluice, or behind a router that is not
    mobile_seq: int = 0  # of the origin, as the sender knows it


class MobileRequest(Struct, frozen=True):
    """MAR: request for the mobile addresses of a router."""

    id: str
    version: int
    have_seq: int


class MobileChange(Struct, frozen=True):
    """MAU, differential: added keys with treatments (None: not stated), and removed keys."""

    id: str
    version: int
    mobile_seq: int
    added: dict[str, int | None]
    removed: tuple[str, ...]


class MobileState(Struct, frozen=True):
    """MAU, absolute: all keys. `instance`, `part` and `parts` are used only between Sluice neighbours."""

    id: str
    version: int
    mobile_seq: int
    keys: dict[str, int | None]
    instance: int | None = None
    part: int = 1
    parts: int = 1


class Summary(Struct, frozen=True):
    """SUMMARY, between Sluice neighbours: the state of the sender as router -> (instance, ls_seq, mobile_seq)."""

    id: str
    version: int
    instance: int
    routers: dict[str, tuple[int, int, int]]


Message = (
    Hello | Advertisement | LinkStateRequest | LinkStateUpdate | MobileRequest | MobileChange | MobileState | Summary
)

# ---------------------------------------------------------------------------------------------------------------------
# Encoding, byte for byte as 1.19


def _compound(code: bytes, items: list[bytes]) -> bytes:
    body = b"".join(items)
    return code + (len(body) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body


def _map(items: list[bytes]) -> bytes:
    return _compound(b"\xd1", items)


def _list(items: list[bytes]) -> bytes:
    return _compound(b"\xd0", items)


def _int(value: int) -> bytes:
    return codec.encode_value(value)


def _long(value: int) -> bytes:
    if -128 <= value < 128:
        return b"\x55" + value.to_bytes(1, "big", signed=True)
    return b"\x81" + value.to_bytes(8, "big", signed=True)


_string = codec.encode_string
_symbol = codec.encode_symbol
_ABSENT: Final = b"\x40"
_AREA: Final = _string("0")
_K: Final = {
    key: _string(key)
    for key in (
        "id",
        "pv",
        "area",
        "instance",
        "seen",
        "ls_seq",
        "mobile_seq",
        "ls",
        "peers",
        "age",
        "foreign",
        "routers",
        "process",
    )
}
_S: Final = {
    key: _symbol(key)
    for key in (
        "id",
        "pv",
        "area",
        "mobile_seq",
        "have_seq",
        "add",
        "del",
        "exist",
        "hints",
        "instance",
        "part",
        "parts",
    )
}


def _tail1(to: str, opcode: str, body: list[bytes]) -> bytes:
    """Return the tail of a HELLO, RA, LSR or LSU, which 1.19 encodes in Python."""
    properties = _list([_ABSENT, _ABSENT, _string(to), _ABSENT, _ABSENT, _ABSENT])
    application = _map([_string("opcode"), _string(opcode)])
    return b"\0\x53\x73" + properties + b"\0\x53\x74" + application + b"\0\x53\x77" + _map(body)


def _tail2(to: str, opcode: str, body: list[bytes]) -> bytes:
    """Return the tail of a MAR or MAU, which 1.19 encodes in C."""
    properties = _list([_ABSENT, _ABSENT, _string(to)])
    application = _map([_symbol("opcode"), _string(opcode)])
    return b"\0\x53\x73" + properties + b"\0\x53\x74" + application + b"\0\x53\x77" + _map(body)


def _sender1(router_id: str) -> list[bytes]:
    return [_K["id"], _string(router_id), _K["pv"], _int(VERSION), _K["area"], _AREA]


def _sender2(router_id: str) -> list[bytes]:
    return [_S["id"], _string(router_id), _S["pv"], _long(VERSION), _S["area"], _AREA]


def encode_hello(router_id: str, instance: int, seen: list[str], process: int = 0) -> bytes:
    """Return a HELLO. process: only for a Sluice neighbour."""
    listed = _list([_string(item) for item in seen]) if seen else b"\x45"
    body = [*_sender1(router_id), _K["instance"], _int(instance), _K["seen"], listed]
    if process:
        body += [_K["process"], _long(process)]
    return _tail1(TO_HELLO, "HELLO", body)


def encode_advertisement(router_id: str, instance: int, ls_seq: int, mobile_seq: int) -> bytes:
    body = [*_sender1(router_id), _K["instance"], _int(instance)]
    return _tail1(TO_ALL_LS, "RA", [*body, _K["ls_seq"], _int(ls_seq), _K["mobile_seq"], _int(mobile_seq)])


def encode_link_state_request(router_id: str, to: str) -> bytes:
    return _tail1(to, "LSR", _sender1(router_id))


def encode_link_state(
    router_id: str,
    instance: int,
    ls_seq: int,
    peers: Iterable[tuple[str, int]],
    to: str,
    age: int | None = None,
    foreign: bool = False,
    mobile_seq: int = 0,
) -> bytes:
    """Return an LSU. age, foreign, mobile_seq: only for a Sluice neighbour."""
    costs = [item for peer, cost in peers for item in (_string(peer), _int(cost))]
    state = [_K["id"], _string(router_id), _K["area"], _AREA, _K["ls_seq"], _int(ls_seq), _K["peers"], _map(costs)]
    body = [*_sender1(router_id), _K["instance"], _int(instance), _K["ls_seq"], _int(ls_seq), _K["ls"], _map(state)]
    if age is not None:
        body += [_K["age"], _int(age)]
    if foreign:
        body += [_K["foreign"], b"\x41"]
    if mobile_seq:
        body += [_K["mobile_seq"], _int(mobile_seq)]
    return _tail1(to, "LSU", body)


def encode_mobile_request(router_id: str, have_seq: int, to: str) -> bytes:
    return _tail2(to, "MAR", [*_sender2(router_id), _S["have_seq"], _long(have_seq)])


def _hints(treatments: list[int]) -> bytes:
    return _list([_int(treatment) for treatment in treatments])


def encode_mobile_change(router_id: str, mobile_seq: int, added: Mapping[str, int], removed: Iterable[str]) -> bytes:
    body = [*_sender2(router_id), _S["mobile_seq"], _long(mobile_seq), _S["hints"], _hints(list(added.values()))]
    body += [_S["add"], _list([_string(key) for key in added]), _S["del"], _list([_string(key) for key in removed])]
    return _tail2(TO_ALL_MOBILE, "MAU", body)


def encode_mobile_state(
    router_id: str,
    mobile_seq: int,
    keys: Mapping[str, int | None],
    to: str,
    instance: int | None = None,
    part: int = 1,
    parts: int = 1,
) -> bytes:
    """Return an absolute MAU, without hints if the treatment of a key is unknown.

    instance, part, parts: only for a Sluice neighbour.
    """
    body = [*_sender2(router_id), _S["mobile_seq"], _long(mobile_seq)]
    body += [_S["exist"], _list([_string(key) for key in keys])]
    hints = [hint for hint in keys.values() if hint is not None]
    if len(hints) == len(keys):
        body += [_S["hints"], _hints(hints)]
    if instance is not None:
        body += [_S["instance"], _long(instance)]
    if parts > 1:
        body += [_S["part"], _long(part), _S["parts"], _long(parts)]
    return _tail2(to, "MAU", body)


def in_parts(keys: Mapping[str, _Hint], octets: int) -> Iterator[dict[str, _Hint]]:
    """Split keys into parts of at most `octets` octets. Yields one empty part if there are no keys."""
    part: dict[str, _Hint] = {}
    left = octets
    for key, hint in keys.items():
        size = len(key.encode()) + _KEY_OCTETS
        if size > left and part:
            yield part
            part, left = {}, octets
        part[key] = hint
        left -= size
    yield part


def encode_summary(router_id: str, instance: int, routers: dict[str, tuple[int, int, int]]) -> bytes:
    listed = [_list([_string(key), *(_int(number) for number in numbers)]) for key, numbers in routers.items()]
    body = [*_sender1(router_id), _K["instance"], _int(instance), _K["routers"], _list(listed)]
    return _tail1(TO_NEIGHBOUR_LS, "SUMMARY", body)


# ---------------------------------------------------------------------------------------------------------------------
# Decoding accepts all that 1.19 accepts (inter-router.md 4.1), and raises ControlMessageError for all else.


def address(octets: bytes, at: int) -> str | None:
    """Return properties.to of the tail at `at`, or None. Raises ControlMessageError."""
    if octets[at : at + 4] == b"\0\x53\x73\xd0" and octets[at + 12 : at + 15] == b"\x40\x40\xa1":
        end = at + 16 + octets[at + 15] if at + 15 < len(octets) else at
        if at < end <= len(octets):
            text = octets[at + 16 : end]
            if text.isascii():
                return text.decode()
    try:
        code, value_at = section(octets, at)
        if code != 0x73:
            return None
        properties, _ = codec.decode(octets, value_at)
    except AmqpError as error:
        raise ControlMessageError(str(error)) from None
    if not isinstance(properties, list):
        raise ControlMessageError("properties are not a list")
    to = properties[2] if len(properties) > 2 else None
    if to is not None and type(to) is not str:
        raise ControlMessageError("properties.to is not a string")
    return to


def decode(tail: bytes) -> Message | None:
    """Return the message, or None for an unknown opcode, which is not an error. Raises ControlMessageError."""
    try:
        opcode, body = _parts(tail)
        if not isinstance(opcode, str):
            raise ControlMessageError("no opcode")
        reader = _READERS.get(opcode)
        if reader is None:
            return None
        if not isinstance(body, dict):
            raise ControlMessageError(f"body of {opcode} is not a map")
        try:
            message = reader(body)
        except ControlMessageError as error:
            raise ControlMessageError(f"{opcode}: {error}") from None
    except AmqpError as error:
        raise ControlMessageError(str(error)) from None
    return message


def _parts(tail: bytes) -> tuple[Any, Any]:
    """Return (opcode, body) of a tail."""
    opcode = body = None
    at = 0
    while at < len(tail):
        code, at = section(tail, at)
        value, at = codec.decode(tail, at)
        if code == 0x74:
            if not isinstance(value, dict):
                raise ControlMessageError("application properties are not a map")
            opcode = value.get("opcode")
        elif code == 0x77:
            body = value
    return opcode, body


def _text(body: dict[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise ControlMessageError(f"{key} missing" if value is None else f"{key} is not a string")
    return str(value) if type(value) is not str else value


def _number(body: dict[str, Any], key: str, default: int | None = None) -> int:
    value = body.get(key)
    if value is None and key not in body and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ControlMessageError(f"{key} missing" if value is None else f"{key} is not an integer")
    if value not in _INTEGERS:
        raise ControlMessageError(f"{key} is out of range")
    return int(value)


def _texts(body: dict[str, Any], key: str) -> list[str]:
    value = body.get(key)
    if not isinstance(value, list):
        raise ControlMessageError(f"{key} missing" if value is None else f"{key} is not a list")
    if not all(isinstance(item, str) for item in value):
        raise ControlMessageError(f"{key} is not a list of strings")
    return [item if type(item) is str else str(item) for item in value]


def _hello(body: dict[str, Any]) -> Hello:
    return Hello(
        _text(body, "id"),
        _number(body, "pv", 0),
        _number(body, "instance", 0),
        tuple(_texts(body, "seen")),
        _number(body, "process", 0),
    )


def _advertisement(body: dict[str, Any]) -> Advertisement:
    return Advertisement(
        _text(body, "id"),
        _number(body, "pv", 0),
        _number(body, "instance", 0),
        _number(body, "ls_seq"),
        _number(body, "mobile_seq"),
    )


def _link_state_request(body: dict[str, Any]) -> LinkStateRequest:
    return LinkStateRequest(_text(body, "id"), _number(body, "pv", 0))


def _link_state_update(body: dict[str, Any]) -> LinkStateUpdate:
    router_id = _text(body, "id")
    _number(body, "ls_seq")
    state = body.get("ls")
    if not isinstance(state, dict):
        raise ControlMessageError("ls missing" if state is None else "ls is not a map")
    _text(state, "id")
    peers = state.get("peers")
    if not isinstance(peers, dict):
        raise ControlMessageError("peers missing" if peers is None else "peers is not a map")
    costs: dict[str, int] = {}
    for peer, cost in peers.items():
        if not isinstance(peer, str) or not peer:
            raise ControlMessageError("the id of a peer is not a string")
        if not isinstance(cost, int) or isinstance(cost, bool) or not 0 < cost <= MOST_COST:
            raise ControlMessageError("the cost of a peer is not a positive integer")
        costs[str(peer)] = int(cost)
    return LinkStateUpdate(
        router_id,
        _number(body, "pv", 0),
        _number(body, "instance", 0),
        _number(state, "ls_seq"),
        costs,
        max(0, _number(body, "age", 0)),
        body.get("foreign") is True,
        _number(body, "mobile_seq", 0),
    )


def _mobile_request(body: dict[str, Any]) -> MobileRequest:
    return MobileRequest(_text(body, "id"), _number(body, "pv", 0), _number(body, "have_seq"))


def _mobile_update(body: dict[str, Any]) -> MobileChange | MobileState:
    router_id, version = _text(body, "id"), _number(body, "pv", 0)
    mobile_seq = _number(body, "mobile_seq")
    if "exist" in body:
        if "add" in body or "del" in body:
            raise ControlMessageError("field 'exist' is given together with 'add' or 'del'")
        keys = _texts(body, "exist")
        instance = _number(body, "instance") if "instance" in body else None
        part, parts = (_number(body, "part"), _number(body, "parts")) if "parts" in body else (1, 1)
        if not 1 <= part <= parts:
            raise ControlMessageError("part is out of range")
        treatments = _treatments(keys, body.get("hints"))
        return MobileState(router_id, version, mobile_seq, treatments, instance, part, parts)
    added = _texts(body, "add")
    return MobileChange(
        router_id, version, mobile_seq, _treatments(added, body.get("hints")), tuple(_texts(body, "del"))
    )


def _treatments(keys: list[str], hints: Any) -> dict[str, int | None]:
    """Return the treatments by key; None for all if the number of hints differs, and for a hint out of range."""
    if not isinstance(hints, list) or len(hints) != len(keys):
        return dict.fromkeys(keys)
    return {
        key: int(hint) if isinstance(hint, int) and hint in _TREATMENTS else None
        for key, hint in zip(keys, hints, strict=True)
    }


def _summary(body: dict[str, Any]) -> Summary:
    routers: dict[str, tuple[int, int, int]] = {}
    listed = body.get("routers")
    if not isinstance(listed, list):
        raise ControlMessageError("routers missing" if listed is None else "routers is not a list")
    for entry in listed:
        if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[0], str):
            raise ControlMessageError("an entry of a summary is malformed")
        if not all(isinstance(number, int) and number in _INTEGERS for number in entry[1:]):
            raise ControlMessageError("an entry of a summary is malformed")
        routers[str(entry[0])] = (int(entry[1]), int(entry[2]), int(entry[3]))
    return Summary(_text(body, "id"), _number(body, "pv", 0), _number(body, "instance", 0), routers)


_READERS: Final[dict[str, Callable[[dict[str, Any]], Message]]] = {
    "HELLO": _hello,
    "RA": _advertisement,
    "LSR": _link_state_request,
    "LSU": _link_state_update,
    "MAR": _mobile_request,
    "MAU": _mobile_update,
    "SUMMARY": _summary,
}
