"""A network of protocol engines on a virtual clock."""
