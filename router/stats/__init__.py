"""Counters and samples of workers, and sums over all workers."""
