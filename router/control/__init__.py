"""The messages between supervisor and workers."""
