"""HTTP: sockets, limits, and pages by path."""
