"""Services beside the event loop: threads, deadlines, host names."""
