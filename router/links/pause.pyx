"""Why the router keeps frames of a connection in its transport, beside PAUSE_ATTACH: bits for Connection.pause."""
