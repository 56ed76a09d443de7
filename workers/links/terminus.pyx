"""Source and target of an attach (AMQP 1.0 part 3, 3.5): the fields that decide about a link, and the terminus of the
answer.

Most fields of most termini are null or absent. They cost no Python value.
"""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.codec cimport open_described, split_fields
from sluice.router.amqp.performatives cimport value_of

from sluice.router.amqp.codec import described_list, encode_described, encode_string
from sluice.router.amqp.errors import INVALID_FIELD, RemoteError
from sluice.workers.links.encoded import NULL as ENCODED_NULL
from sluice.workers.links.encoded import SESSION_END, TRUE

cdef enum:
    C_SOURCE = 0x28
    C_TARGET = 0x29
    C_COORDINATOR = 0x30
    # Positions in the list; source and target agree up to dynamic-node-properties.
    C_ADDRESS = 0
    C_DURABLE = 1
    C_EXPIRY = 2
    C_TIMEOUT = 3
    C_DYNAMIC = 4
    C_NODE_PROPERTIES = 5
    C_FILTER = 7
    C_SOURCE_CAPABILITIES = 10
    C_TARGET_CAPABILITIES = 6

SOURCE = C_SOURCE
TARGET = C_TARGET
COORDINATOR = C_COORDINATOR

ADDRESS = C_ADDRESS
DURABLE = C_DURABLE
EXPIRY = C_EXPIRY
TIMEOUT = C_TIMEOUT
DYNAMIC = C_DYNAMIC
NODE_PROPERTIES = C_NODE_PROPERTIES
SOURCE_CAPABILITIES = C_SOURCE_CAPABILITIES
TARGET_CAPABILITIES = C_TARGET_CAPABILITIES
_DYNAMIC_ADDRESS_KEY = "x-opt-qd.address"

_DURABILITY = {0: "", 1: "(config)", 2: "(unsettled)"}
_EXPIRIES = {"link-detach": "link", "session-end": "sess", "connection-close": "conn", "never": "never"}


cdef inline bint is_null(bytes item) noexcept:
    return len(item) == 1 and (<const uint8_t*>item)[0] == 0x40


cdef class PeerTerminus:
    """Terminus of a link, as its peer wrote it. Immutable after creation."""
    cdef readonly int code                 # descriptor; 0: there is no terminus
    cdef readonly list items               # encoded fields
    cdef readonly object address
    cdef readonly object expiry
    cdef readonly object timeout
    cdef readonly bint dynamic
    cdef readonly object dynamic_address   # address requested for a dynamic node, or None
    cdef readonly bint array               # the capabilities are an array
    cdef readonly list capabilities

    def __init__(self, bytes raw not None):
        """Decode a terminus. raw: the encoded terminus. Raises RemoteError if it is not one."""
        cdef const uint8_t* p = raw
        cdef const uint8_t* fields
        cdef uint64_t code
        self.timeout = 0
        self.capabilities = []
        if len(raw) == 0 or is_null(raw):
            self.items = []
            return
        fields = open_described(p, p + len(raw), &code)
        if fields is NULL:
            described_list(raw)                # raises the error of the codec
        self.items = split_fields(fields, p + len(raw))
        if code not in (C_SOURCE, C_TARGET, C_COORDINATOR):
            text = f"attach: descriptor 0x{code:02x} of a terminus is neither that of a source nor of a target"
            raise RemoteError("link", INVALID_FIELD, text)
        self.code = <int>code
        if self.code == C_COORDINATOR:
            return
        self.address = self.text(C_ADDRESS, "address")
        if len(self.items) <= C_DURABLE:
            return
        self.expiry = self.text(C_EXPIRY, "expiry-policy")
        timeout = self.value(C_TIMEOUT)
        if isinstance(timeout, int):
            self.timeout = timeout
        self.dynamic = self.value(C_DYNAMIC) is True
        if self.dynamic:
            self.dynamic_address = first_dynamic_address(self.value(C_NODE_PROPERTIES))
        self.read_capabilities(
            self.value(C_SOURCE_CAPABILITIES if self.code == C_SOURCE else C_TARGET_CAPABILITIES))

    cdef int read_capabilities(self, found) except -1:
        if isinstance(found, list):
            self.array = True
            self.capabilities = [str(each) for each in found if isinstance(each, str)]
        elif isinstance(found, str):
            self.capabilities = [str(found)]
        return 0

    cdef object value(self, int index):
        if index >= len(self.items):
            return None
        return value_of(self.items[index])

    cdef object text(self, int index, str name):
        value = self.value(index)
        if value is None or type(value) is str:
            return value
        if isinstance(value, (int, float, bytes, list, dict)):
            raise RemoteError("link", INVALID_FIELD, f"attach: {name} of a terminus is not a string")
        return str(value)

    @property
    def coordinator(self):
        """True if the terminus is a coordinator of transactions."""
        return self.code == C_COORDINATOR

    def reply(self, generated=None):
        """Encode the terminus of the answer: the peer's fields without filters, since none is applied, and with the
        generated address. routing-semantics.md A-2."""
        cdef list items
        if not self.code or self.code == C_COORDINATOR:
            return ENCODED_NULL
        items = list(self.items)
        if generated is not None:
            items += [ENCODED_NULL] * (C_DYNAMIC + 1 - len(items))
            items[C_ADDRESS] = encode_string(generated)
            items[C_DYNAMIC] = TRUE
        if len(items) > C_EXPIRY and is_null(items[C_EXPIRY]):
            items[C_EXPIRY] = SESSION_END
        if self.code == C_SOURCE and len(items) > C_FILTER:
            items[C_FILTER] = ENCODED_NULL
        return encode_described(self.code, items)

    def empty(self, int code):
        """Encode a terminus without an address, for an anonymous link (routing-semantics.md A-3)."""
        return self.reply() if self.code else encode_described(code, [])

    def __str__(self):
        """Return the terminus as the log shows it: `{name expire:sess}`."""
        if not self.code:
            return "{<none>}"
        if self.code == C_COORDINATOR:
            return "{<coordinator>}"
        if len(self.items) <= C_DURABLE:       # the others have their defaults
            return "{" + (self.address or "<none>") + " expire:sess}"
        shown = ("(dyn)" if self.dynamic else "") + (self.address or "<none>")
        durable = self.value(C_DURABLE)
        if isinstance(durable, int):
            shown += _DURABILITY.get(durable, "")
        shown += f" expire:{_EXPIRIES.get(self.expiry or 'session-end', self.expiry)}"
        if self.timeout:
            shown += f" timeout:{self.timeout}"
        if self.capabilities:
            shown += f" caps:[{','.join(self.capabilities)}]"
        return "{" + shown + "}"


def log_text(PeerTerminus source, PeerTerminus target):
    """Return the termini of a link as the log shows them."""
    return "source=" + str(source) + " target=" + str(target)


def first_dynamic_address(properties):
    """Return the address requested for a dynamic node: the first key of its properties, a non-empty string."""
    if isinstance(properties, dict) and properties:
        key, value = next(iter(properties.items()))
        if key == _DYNAMIC_ADDRESS_KEY and isinstance(value, str) and value:
            return str(value)
    return None
