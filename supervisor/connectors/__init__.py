"""Connectors: connections that the router opens, and opens again when they end.

`state` decides which address to try and when, `dial` opens a TCP connection, and `connectors` runs the attempts and
hands sockets over to workers, as listeners do.
"""
