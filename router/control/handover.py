"""Messages that accompany file descriptors, on two channels. See docs/internals/control-protocol.md.

The hand-over channel passes connections to workers, and requests for pages from workers. The channel of the zygote
passes requests for new workers, and their answers.
"""

from typing import Final

from msgspec import Struct

# Octets already read from a connection that a hand-over may carry. In base64 they fit into its message.
MOST_READ_BEFORE: Final = 32768


class InitiateData(Struct, omit_defaults=True, gc=False):
    """Data for a connection that the router opens: the peer's host, and credentials for SASL PLAIN."""

    host: str
    user: str | None
    password: str | None = None
    port: str = ""  # port number for the Host header of an HTTP request; else empty
    mark: str = ""  # for roles edge and inter-edge: mark of this edge router, sent in the opens of all its connections
    uplinks: bool = False  # for role edge: this edge router has several active uplinks


class Handover(Struct, omit_defaults=True, gc=False):
    """Message from supervisor to worker with the descriptor of a TCP connection. `conn` is encoded as first field."""

    conn: int
    profile: str  # key of the profile of the connection's listener or connector
    peer: str  # "ip:port", or "host:port" of a connector
    initiate: InitiateData | None = None  # the router opens the connection
    admits: bool = False  # the worker admits the client, whatever its open says
    octets: bytes = b""  # already read from the socket, as for an HTTP upgrade; at most MOST_READ_BEFORE


class PageRequest(Struct, gc=False):
    """Message from worker to supervisor with the descriptor of a socket: a client of an HTTPS listener requests a page.

    The worker keeps the TLS connection. It relays the request and the response over that socket. `certified`: the
    client has presented a certificate, which was verified.
    """

    conn: int
    certified: bool = False


class ForkRequest(Struct, gc=False):
    """Request from supervisor to zygote for a new worker, with descriptors of the worker's sockets."""

    worker: int
    generation: int


class ForkAnswer(Struct, gc=False):
    """Answer of the zygote, with a pidfd."""

    pid: int  # process id of the new worker; -errno if the fork failed
