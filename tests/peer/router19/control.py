"""Control messages of 1.19: composed octet by octet as 1.19 does, and parsed as leniently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.peer import message
from tests.peer.router19.encoding import list32, map32, python_int, section
from tests.peer.router19.message_head import compose
from tests.peer.types import Int, Long, Raw, Symbol

HELLO_TO = "amqp:/_local/qdhello"
ALL_TO = "amqp:/_topo/0/all/qdrouter"
ALL_MOBILE_TO = "_topo/0/all/qdrouter.ma"
AREA = "0"
PROTOCOL = 1
#: Opcodes whose bodies have string keys and ints; the others have symbol keys and longs.
FAMILY_1 = ("HELLO", "RA", "LSR", "LSU")


class MalformedControlError(ValueError):
    """Raised for a control message that 1.19 drops and logs."""


class Router19Control(NamedTuple):
    """Parsed control message: opcode, body (keys as str), annotations and all octets."""

    opcode: str
    body: dict[str, Any]
    ingress: str | None
    trace: list[str]
    octets: bytes

    @property
    def id(self) -> str:
        """Id of the originating router."""
        return str(self.body.get("id"))


def router_to(router_id: str, mobile: bool = False) -> str:
    """Return the address of a router's control function."""
    return f"amqp:/_topo/0/{router_id}/qdrouter" + (".ma" if mobile else "")


def envelope(sender: str, to: str, opcode: str, body: Raw, trace: Sequence[str] | None = None) -> bytes:
    """Return a whole control message of `sender`. trace: ids of the routers it has passed (default: only the
    sender)."""
    family1 = opcode in FAMILY_1
    via = [f"0/{one}" for one in (trace if trace is not None else [sender])]
    return b"".join(
        (
            section(message.HEADER, list32([False])),
            compose([], ingress=f"0/{sender}", trace=via),
            section(message.PROPERTIES, list32([None, None, to] + ([None] * 3 if family1 else []))),
            section(message.APPLICATION_PROPERTIES, map32([("opcode" if family1 else Symbol("opcode"), opcode)])),
            section(message.VALUE, body),
        )
    )


def _names(items: Sequence[str]) -> Any:
    return list32(items) if items else []


def hello(sender: str, instance: int, seen: Sequence[str], **more: Any) -> bytes:
    """Return a HELLO. more: arguments of `envelope`."""
    body = [*_common(sender), ("instance", python_int(instance)), ("seen", _names(seen))]
    return envelope(sender, HELLO_TO, "HELLO", map32(body), **more)


def router_advertisement(sender: str, instance: int, ls_seq: int, mobile_seq: int, **more: Any) -> bytes:
    """Return an RA."""
    body = [
        *_common(sender),
        ("instance", python_int(instance)),
        ("ls_seq", python_int(ls_seq)),
        ("mobile_seq", python_int(mobile_seq)),
    ]
    return envelope(sender, ALL_TO, "RA", map32(body), **more)


def link_state_request(sender: str, to: str, **more: Any) -> bytes:
    """Return an LSR from `sender` to router `to`."""
    return envelope(sender, router_to(to), "LSR", map32(_common(sender)), **more)


def link_state_update(sender: str, to: str, instance: int, ls_seq: int, peers: dict[str, int], **more: Any) -> bytes:
    """Return an LSU from `sender` to router `to`."""
    costs = map32((peer, python_int(cost)) for peer, cost in peers.items())
    state = map32([("id", sender), ("area", AREA), ("ls_seq", python_int(ls_seq)), ("peers", costs)])
    body = [
        *_common(sender),
        ("instance", python_int(instance)),
        ("ls_seq", python_int(ls_seq)),
        ("ls", state),
    ]
    return envelope(sender, router_to(to), "LSU", map32(body), **more)


def mobile_request(sender: str, to: str, have_seq: int, **more: Any) -> bytes:
    """Return an MAR from `sender` to router `to`."""
    body = [*_mobile(sender), (Symbol("have_seq"), Long(have_seq))]
    return envelope(sender, router_to(to, mobile=True), "MAR", map32(body), **more)


def mobile_update(
    sender: str, mobile_seq: int, added: Sequence[tuple[str, int]], deleted: Sequence[str], **more: Any
) -> bytes:
    """Return a differential MAU. added: keys with their treatments."""
    body = [
        *_mobile(sender),
        (Symbol("mobile_seq"), Long(mobile_seq)),
        (Symbol("hints"), list32(Int(hint) for _key, hint in added)),
        (Symbol("add"), list32(key for key, _hint in added)),
        (Symbol("del"), list32(deleted)),
    ]
    return envelope(sender, ALL_MOBILE_TO, "MAU", map32(body), **more)


def mobile_state(sender: str, to: str, mobile_seq: int, keys: Sequence[tuple[str, int]], **more: Any) -> bytes:
    """Return an absolute MAU to router `to`."""
    body = [
        *_mobile(sender),
        (Symbol("mobile_seq"), Long(mobile_seq)),
        (Symbol("exist"), list32(key for key, _hint in keys)),
        (Symbol("hints"), list32(Int(hint) for _key, hint in keys)),
    ]
    return envelope(sender, router_to(to, mobile=True), "MAU", map32(body), **more)


def _common(sender: str) -> list[tuple[Any, Any]]:
    return [("id", sender), ("pv", Int(PROTOCOL)), ("area", AREA)]


def _mobile(sender: str) -> list[tuple[Any, Any]]:
    return [(Symbol("id"), sender), (Symbol("pv"), Long(PROTOCOL)), (Symbol("area"), AREA)]


# --- reading ----------------------------------------------------------------------------------------------------------


def read(octets: bytes) -> Router19Control:
    """Parse a control message. Raises MalformedControlError."""
    try:
        parts = dict(message.sections(octets))
    except ValueError as error:
        raise MalformedControlError(str(error)) from error
    properties = parts.get(message.APPLICATION_PROPERTIES)
    body = parts.get(message.VALUE)
    if not isinstance(properties, dict) or not isinstance(body, dict):
        raise MalformedControlError("no opcode or no body")
    opcode = next((value for key, value in properties.items() if key == "opcode"), None)
    if not isinstance(opcode, str):
        raise MalformedControlError("no opcode")
    notes = parts.get(message.MESSAGE_ANNOTATIONS) or {}
    ingress, trace = notes.get("x-opt-qd.ingress"), notes.get("x-opt-qd.trace")
    plain = {str(key): value for key, value in body.items()}
    return Router19Control(str(opcode), plain, ingress, [str(one) for one in trace or []], octets)


def text(body: dict[str, Any], key: str) -> str:
    """Return a mandatory string. Raises MalformedControlError."""
    value = body.get(key)
    if not isinstance(value, str):
        raise MalformedControlError(f"{key} is {value!r}")
    return str(value)


def number(body: dict[str, Any], key: str, default: int | None = None) -> int:
    """Return an integer, mandatory if there is no default. Raises MalformedControlError."""
    value = body.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedControlError(f"{key} is {value!r}")
    return int(value)


def texts(body: dict[str, Any], key: str) -> list[str]:
    """Return a mandatory list of strings. Raises MalformedControlError."""
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedControlError(f"{key} is {value!r}")
    return [str(one) for one in value]
