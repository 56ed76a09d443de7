"""`sluice stat`, also installed as `qdstat`, with one module for each group of displays (management.md 8.5)."""
