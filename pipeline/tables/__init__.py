"""Tables of open formats as targets of queries: Delta Lake and Apache Iceberg (docs/decisions/0088-tables.md)."""

FORMATS = ("delta", "iceberg")
