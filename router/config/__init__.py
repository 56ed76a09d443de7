"""The router's configuration: schema, grammar of the file, and what a file means."""
