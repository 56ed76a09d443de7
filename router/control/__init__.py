"""Control messages between supervisor and workers."""
