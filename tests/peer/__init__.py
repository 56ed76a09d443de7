"""Scripted AMQP 1.0 peer for tests: full control of every frame, no dependencies, blocking sockets.

The peer deliberately shares no code with the router, so that an error in one is not repeated in the other.
"""
