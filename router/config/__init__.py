"""The router's configuration: schema, grammar of the file, typed objects."""
