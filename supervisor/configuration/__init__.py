"""Configuration in force, and its changes while the router runs: management requests and reloads."""
