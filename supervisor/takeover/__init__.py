"""Take-over: a new router process gets the listening sockets of the running one (decision 0093)."""
