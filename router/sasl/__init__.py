"""SASL mechanisms, server and client sides (RFC 4422): octets in, octets out. No sockets, no processes, no frames."""
