"""`sluice stat`, also installed as `qdstat`: one module for each group of displays (management.md 8.5)."""
