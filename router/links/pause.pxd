"""Why the router keeps frames of a connection in its transport, beside PAUSE_ATTACH: bits for Connection.pause."""

cpdef enum RouterPause:
    PAUSE_RING = 256             # a ring to another worker is full
    PAUSE_DRAIN = 512            # the worker is about to end
    PAUSE_LOCAL = 1024           # too many of its messages for the router itself are waiting for the supervisor
    PAUSE_CONTROL = 2048         # too many octets of what routers say to each other are
