"""Policy: compiled rules of vhosts and groups, and decisions about what users may do (security.md 5, 6)."""
