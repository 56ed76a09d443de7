"""Fields of an attach (part 2, 2.7.3; termini: part 3, 3.5), encoded and decoded by a client."""

from typing import Any

from msgspec import Struct

from sluice.router.amqp import codec
from sluice.router.amqp.errors import INVALID_FIELD, RemoteError
from sluice.router.amqp.performatives import symbols

NULL = b"\x40"
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
UINT_MOST = 0xFFFFFFFF
SETTLED = {None: NULL, False: b"\x50\x00", True: b"\x50\x01"}


class Terminus(Struct, frozen=True):
    """Source or target. dynamic: the peer generates the address."""

    address: str | None = None
    dynamic: bool = False
    durable: int = 0
    expiry: str | None = None  # "link-detach", "session-end", "connection-close", "never"
    distribution: str | None = None  # of a source: "move", "copy"
    capabilities: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()  # of a source: descriptors of the outcomes that the link supports; (): any

    def encode(self, code: int) -> bytes:
        items = [
            NULL if self.address is None else codec.encode_string(self.address),
            codec.encode_uint(self.durable),
            NULL if self.expiry is None else codec.encode_symbol(self.expiry),
            codec.encode_uint(0),
            b"\x41" if self.dynamic else b"\x42",
            NULL,
        ]
        if code == SOURCE:
            items += [NULL if self.distribution is None else codec.encode_symbol(self.distribution), NULL, NULL]
            items.append(codec.encode_symbols(self.outcomes) if self.outcomes else NULL)
        items.append(codec.encode_symbols(self.capabilities) if self.capabilities else NULL)
        return bytes(codec.encode_described(code, items))


class Coordinator(Struct, frozen=True):
    """Target of a link that declares and discharges transactions (part 4, 4.5.1)."""

    capabilities: tuple[str, ...] = ("amqp:local-transactions",)

    def encode(self, code: int) -> bytes:
        """Encode it. code: of a target, which a coordinator stands in place of."""
        return bytes(codec.encode_described(COORDINATOR, [codec.encode_symbols(self.capabilities)]))


def encode(
    name: str,
    handle: int,
    *,
    receiver: bool,
    source: Terminus,
    target: Terminus | Coordinator,
    settled: bool | None,
    second: bool = False,
    max_message_size: int = 0,
    properties: dict[str, Any] | None = None,
) -> list[bytes]:
    """Return the items of this client's attach. settled: snd-settle-mode settled or unsettled, None: mixed. second:
    rcv-settle-mode."""
    items = [
        codec.encode_string(name),
        codec.encode_uint(handle),
        b"\x41" if receiver else b"\x42",
        b"\x50\x02" if settled is None else SETTLED[settled],
        b"\x50\x01" if second else b"\x50\x00",
        source.encode(SOURCE),
        target.encode(TARGET),
        NULL,
        NULL,
        NULL if receiver else codec.encode_uint(0),
        codec.encode_ulong(max_message_size) if max_message_size else NULL,
        NULL,
        NULL,
    ]
    if properties:
        items.append(
            codec.encode_map(
                [part for k, v in properties.items() for part in (codec.encode_symbol(k), codec.encode_value(v))]
            )
        )
    return items


class PeerAttach(Struct, frozen=True):
    """Peer's attach. address: of its terminus; None if the peer refuses the link, whose detach follows then."""

    address: str | None
    refused: bool
    initial_delivery_count: int
    max_message_size: int
    capabilities: tuple[str, ...]


def read(items: list[bytes], receiver: bool) -> PeerAttach:
    """Decode the peer's attach. receiver: this client receives on the link. Raises AmqpError."""
    raw = items[5 if receiver else 6] if len(items) > (5 if receiver else 6) else NULL
    address: str | None = None
    capabilities: tuple[str, ...] = ()
    if raw != NULL:
        code, fields = codec.described_list(raw)
        values = [codec.decode_one(field) for field in fields]
        address = values[0] if values and isinstance(values[0], str) else None
        at = {SOURCE: 10, COORDINATOR: 0}.get(code, 6)
        capabilities = tuple(symbols(values[at])) if len(values) > at else ()
    first, most = (codec.decode_one(items[at]) if len(items) > at else None for at in (9, 10))
    if first is not None and (not isinstance(first, int) or not 0 <= first <= UINT_MOST):
        raise RemoteError("link", INVALID_FIELD, "attach: initial-delivery-count is not a uint")
    if most is not None and (not isinstance(most, int) or most < 0):
        raise RemoteError("link", INVALID_FIELD, "attach: max-message-size is not a ulong")
    return PeerAttach(address, raw == NULL, first or 0, most or 0, capabilities)
