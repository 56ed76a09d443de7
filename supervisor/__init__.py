"""The supervisor process: children, listeners, address table, decisions."""
