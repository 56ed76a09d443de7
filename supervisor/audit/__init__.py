"""Audit log: logins, refusals and changes of the router, as JSON lines separate from the router's log."""
