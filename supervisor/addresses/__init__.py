"""The address table, address settings, exchanges, and the router's own addresses."""
