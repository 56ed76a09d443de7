"""Network of protocol engines on a virtual clock."""
