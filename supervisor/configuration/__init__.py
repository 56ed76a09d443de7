"""The configuration in force, and the ways to change it while the router runs."""
