"""In-process router for tests: engine, tables and supervisor decisions, without sockets and without real time."""
