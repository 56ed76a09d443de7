"""The engine, tables and decisions of a whole router in one process, without sockets and without time."""
