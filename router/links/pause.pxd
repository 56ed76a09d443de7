"""Reasons beside PAUSE_ATTACH for leaving a connection's frames in its transport: bits of Connection.pause."""

cdef enum:
    PAUSE_RING = 256             # a ring to another worker is full
    PAUSE_DRAIN = 512            # the worker is about to end
    PAUSE_LOCAL = 1024           # too many of its messages for the router itself wait for the supervisor
    PAUSE_CONTROL = 2048         # too many octets of control messages between routers wait for the supervisor
