"""SASL mechanisms (RFC 4422), server and client side, without sockets, processes or frames."""
