"""Measuring tools: the wire-level load generator (wire/) and the benchmark that drives it."""
