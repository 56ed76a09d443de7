"""Address texts with their keys, patterns and settings, and shortest paths between routers."""
