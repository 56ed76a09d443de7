"""Utilities around the event loop: threads, deadlines, host names."""
