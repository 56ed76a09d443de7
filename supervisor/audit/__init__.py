"""The audit log: who logged in, was refused, or changed the router, as lines of JSON apart from the log."""
