"""What users may do: rules of vhosts and groups, compiled, and the decisions made by them (security.md 5, 6)."""
