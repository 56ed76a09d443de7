"""Listeners: sockets, accepted connections, profiles."""
