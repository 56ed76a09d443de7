"""Reasons beside PAUSE_ATTACH for leaving a connection's frames in its transport: bits of Connection.pause."""
