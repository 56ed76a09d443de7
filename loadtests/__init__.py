"""Load tests and benchmarks: the wire-level load generator (wire/), the programs that drive it, and random tests."""
