"""Records of connections and containers, admission of connections, and frame traces."""
