"""What users may do: decisions about connections and links, and what is counted for them (security.md 5, 6)."""
