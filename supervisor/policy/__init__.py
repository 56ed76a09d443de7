"""User permissions: decisions about connections and links, and their counters (security.md 5, 6)."""
