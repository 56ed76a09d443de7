"""Deliveries on their way from a producer to its consumers, and what becomes of them."""
