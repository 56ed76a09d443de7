"""Between workers: shared memory, rings, wake-ups, and the port to another worker."""
