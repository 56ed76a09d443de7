"""Network of routers: the protocol, inter-router connections, and changes of the address table."""
