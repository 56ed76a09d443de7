"""What processes share: the memory region, rings between workers, wake-ups and control messages."""
