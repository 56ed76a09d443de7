"""Address table, address settings, exchanges, and the in-process addresses of the router."""
