"""In-process endpoints for tests of clients and tools, available with option -T (management.md 3.2).

The specification gives only their names, so they behave as the names suggest:

    echo      sends each message to its reply-to address, otherwise unchanged
    sink      accepts all messages
    discard   rejects all messages
    deny      refuses every attach
    source    sends as many numbered messages as the receiver gives credit for (router/links/source_link.pyx)
    source_ps sends numbered messages like `source`, presettled
"""

from typing import Final

from sluice.router.addressing.address import MOBILE, key
from sluice.router.amqp.codec import decode, described_list, encode_described
from sluice.router.amqp.errors import RemoteError
from sluice.supervisor.addresses.inprocess import InProcessAddresses, LocalMessage
from sluice.supervisor.links.attach import AttachDecider, AttachRefused

PREFIX: Final = "org.apache.qpid.dispatch.router/test/"
DENIED: Final = AttachRefused("qd:forbidden", "Connectivity to the deny node is forbidden")
SOURCES: Final = {"source": False, "source_ps": True}  # by name; True: messages are presettled

_PROPERTIES: Final = 0x73
_TO, _REPLY_TO = 2, 4
_NULL: Final = b"\x40"


def add_test_hooks(in_process: InProcessAddresses, attaching: AttachDecider) -> None:
    """Create the test endpoints."""

    def send_back(message: LocalMessage) -> None:
        found = echo(message.octets)
        if found is not None:
            in_process.send(*found, message.worker_index)

    in_process.serve(key(MOBILE, f"{PREFIX}echo"), send_back)
    in_process.serve(key(MOBILE, f"{PREFIX}sink"), _take)
    in_process.open(key(MOBILE, f"{PREFIX}discard"), rejects=True)
    attaching.refuse(key(MOBILE, f"{PREFIX}deny"), DENIED)
    for name, settled in SOURCES.items():
        attaching.produce(key(MOBILE, PREFIX + name), settled)


def _take(message: LocalMessage) -> None:
    """Accept the message and drop it."""


def echo(octets: bytes) -> tuple[str, bytes] | None:
    """Return the reply-to address of a message, and the message with that address as `to`.

    Returns None if the message has no reply-to or is invalid.
    """
    at = 0
    try:
        while at < len(octets):
            start = at
            section, at = decode(octets, at)
            if section.descriptor != _PROPERTIES:
                continue
            _, items = described_list(octets[start:at])
            reply_to = section.value[_REPLY_TO] if len(items) > _REPLY_TO else None
            if not isinstance(reply_to, str):
                return None
            items[_TO], items[_REPLY_TO] = items[_REPLY_TO], _NULL
            return reply_to, octets[:start] + encode_described(_PROPERTIES, items) + octets[at:]
    except (RemoteError, AttributeError, TypeError):  # the octets are not valid sections
        return None
    return None
