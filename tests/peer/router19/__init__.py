"""Simulated interior router of Dispatch 1.19, written only from the description of its protocol.

It shares no code with the router under test. Its control messages equal those of 1.19 octet by octet, and it repeats
the errors of 1.19. Tests drive it: they start and connect it, send messages, inspect and settle arrivals, and read its
tables. `router.Router19` is the router, `loop.Router19Loop` the thread that runs its sockets.
"""
