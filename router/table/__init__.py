"""The address table of a worker, and who gets a delivery."""
