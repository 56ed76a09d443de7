"""Messages of two channels that carry a descriptor each: connections to workers, and back requests for pages and
connections for another worker; requests for new workers to the zygote and back. See docs/internals/control-protocol.md.
"""

from typing import Final

from msgspec import Struct

# Octets already read from a connection that a hand-over may carry: in base64 they fit into its message.
MOST_READ_BEFORE: Final = 32768


class Initiate(Struct, omit_defaults=True, gc=False):
    """For a connection that the router opens: the peer's host, and credentials for SASL PLAIN."""

    host: str
    user: str | None
    password: str | None = None
    port: str = ""  # a number, where an HTTP server is to be told
    mark: str = ""  # of roles edge and inter-edge: what all connections of this edge router bear in their opens
    uplinks: bool = False  # of role edge: this edge router has several uplinks at work


class Begun(Struct, omit_defaults=True, gc=False):
    """How a connection has begun in the worker that had it first: headers and SASL are through, its open has come."""

    user: str | None
    mechanism: str | None  # of SASL; None: without


class Handover(Struct, omit_defaults=True, gc=False):
    """Supervisor to worker, with the descriptor of a TCP connection. `conn` is the first field of its encoded form."""

    conn: int
    profile: str  # key of the profile of its listener or connector
    peer: str  # "ip:port", or "host:port" of a connector
    initiate: Initiate | None = None  # the router opens the connection
    octets: bytes = b""  # read from the socket before, as after an HTTP upgrade; at most MOST_READ_BEFORE
    begun: Begun | None = None  # another worker had the connection until its open, with which the octets begin


class Moved(Struct, tag_field="t", tag="moved", gc=False):
    """Worker to supervisor, with the descriptor of a connection that `move` has asked for."""

    conn: int
    octets: bytes  # the open, and what came behind it; at most MOST_READ_BEFORE
    begun: Begun


class PageRequest(Struct, tag_field="t", tag="page", gc=False):
    """Worker to supervisor, with the descriptor of a socket: a client of an HTTPS listener, whose connection the worker
    has, asks for a page. What it says comes over that socket, and the answer goes there."""

    conn: int


class ForkRequest(Struct, gc=False):
    """Supervisor to zygote, with the worker's end of its hand-over pair."""

    worker: int
    generation: int


class ForkAnswer(Struct, gc=False):
    """Zygote to supervisor, with a pidfd."""

    pid: int  # -errno where there is no worker
