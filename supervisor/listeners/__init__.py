"""Listeners: sockets, accepted connections, profiles, and the choice of a worker for each connection."""
