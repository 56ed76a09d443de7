"""Connectors: connections that the router opens itself, and opens again when they end.

`state` decides what is tried and when, `dial` opens a TCP connection, `password` finds out a password, and `connectors`
is what runs: it hands open sockets over to workers, like those of listeners.
"""
