"""A scripted AMQP 1.0 peer for tests: full control of every frame, no dependency, blocking sockets.

It shares no code with the router, on purpose: what one side misreads the other must not misread too.
"""
