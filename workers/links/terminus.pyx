"""Source and target of an attach (AMQP 1.0 part 3, 3.5): the fields that decide about a link, and the terminus of the
answer."""

from typing import Final

from sluice.router.amqp.codec import decode_one, described_list, encode_described, encode_string
from sluice.router.amqp.errors import INVALID_FIELD, RemoteError

SOURCE: Final = 0x28
TARGET: Final = 0x29
COORDINATOR: Final = 0x30

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
SESSION_END: Final = b"\xa3\x0bsession-end"

# Positions in the list; source and target agree up to dynamic-node-properties.
ADDRESS, DURABLE, EXPIRY, TIMEOUT, DYNAMIC, NODE_PROPERTIES, FILTER = 0, 1, 2, 3, 4, 5, 7
SOURCE_CAPABILITIES: Final = 10
TARGET_CAPABILITIES: Final = 6
DYNAMIC_ADDRESS_KEY: Final = "x-opt-qd.address"

DURABILITY: Final = {0: "", 1: "(config)", 2: "(unsettled)"}
EXPIRIES: Final = {"link-detach": "link", "session-end": "sess", "connection-close": "conn", "never": "never"}


class PeerTerminus:
    """Terminus of a link, as its peer wrote it. Immutable after creation."""

    __slots__ = ("address", "array", "capabilities", "code", "dynamic", "dynamic_address", "expiry", "items", "timeout")

    def __init__(self, raw: bytes) -> None:
        """Decode a terminus. raw: the encoded terminus. Raises RemoteError if it is not one."""
        self.items: list[bytes] = []
        self.code = 0
        if raw not in (b"", NULL):
            self.code, self.items = described_list(raw)
            if self.code not in (SOURCE, TARGET, COORDINATOR):
                text = f"attach: descriptor 0x{self.code:02x} of a terminus is neither that of a source nor of a target"
                raise RemoteError("link", INVALID_FIELD, text)
        coordinator = self.code == COORDINATOR
        self.address = self._text(ADDRESS, "address") if not coordinator else None
        self.expiry = self._text(EXPIRY, "expiry-policy") if not coordinator else None
        timeout = self._value(TIMEOUT) if not coordinator else None
        self.timeout = timeout if isinstance(timeout, int) else 0
        self.dynamic = not coordinator and self._value(DYNAMIC) is True
        self.dynamic_address: str | None = None
        if self.dynamic:
            self.dynamic_address = first_dynamic_address(self._value(NODE_PROPERTIES))
        caps = (
            self._value(SOURCE_CAPABILITIES if self.code == SOURCE else TARGET_CAPABILITIES)
            if not coordinator
            else None
        )
        self.array = isinstance(caps, list)
        self.capabilities = (
            [str(cap) for cap in caps if isinstance(cap, str)]
            if isinstance(caps, list)
            else ([str(caps)] if isinstance(caps, str) else [])
        )

    def _value(self, index: int) -> object:
        return decode_one(self.items[index]) if index < len(self.items) else None

    def _text(self, index: int, name: str) -> str | None:
        value = self._value(index)
        if value is None or isinstance(value, str):
            return None if value is None else str(value)
        if isinstance(value, (int, float, bytes, list, dict)):
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} of a terminus is not a string")
        return str(value)

    @property
    def coordinator(self) -> bool:
        return self.code == COORDINATOR

    def reply(self, generated: str | None = None) -> bytes:
        """Encode the terminus of the answer: the peer's fields without filters, since none is applied, and with the
        generated address. routing-semantics.md A-2."""
        if not self.code or self.coordinator:
            return NULL
        items = list(self.items)
        if generated is not None:
            items += [NULL] * (DYNAMIC + 1 - len(items))
            items[ADDRESS] = encode_string(generated)
            items[DYNAMIC] = TRUE
        if len(items) > EXPIRY and items[EXPIRY] == NULL:
            items[EXPIRY] = SESSION_END
        if self.code == SOURCE and len(items) > FILTER:
            items[FILTER] = NULL
        return encode_described(self.code, items)

    def empty(self, code: int) -> bytes:
        """Encode a terminus without an address, for an anonymous link (routing-semantics.md A-3)."""
        return self.reply() if self.code else encode_described(code, [])

    def __str__(self) -> str:
        """Return the terminus as the log shows it: `{name expire:sess}`."""
        if not self.code:
            return "{<none>}"
        if self.coordinator:
            return "{<coordinator>}"
        durable = self._value(DURABLE)
        text = ("(dyn)" if self.dynamic else "") + (self.address or "<none>")
        text += DURABILITY.get(durable, "") if isinstance(durable, int) else ""
        text += f" expire:{EXPIRIES.get(self.expiry or 'session-end', self.expiry)}"
        if self.timeout:
            text += f" timeout:{self.timeout}"
        if self.capabilities:
            text += f" caps:[{','.join(self.capabilities)}]"
        return "{" + text + "}"


def first_dynamic_address(properties: object) -> str | None:
    """Return the address requested for a dynamic node: the first key of its properties, a non-empty string."""
    if isinstance(properties, dict) and properties:
        key, value = next(iter(properties.items()))
        if key == DYNAMIC_ADDRESS_KEY and isinstance(value, str) and value:
            return str(value)
    return None
