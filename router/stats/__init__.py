"""What is counted and measured, and the sums over all workers."""
