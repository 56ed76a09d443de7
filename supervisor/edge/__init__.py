"""Edge routers: what an interior router does for those that connect to it, and what an edge router does itself."""
