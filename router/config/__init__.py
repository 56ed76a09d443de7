"""Configuration of the router: schema, grammar of the file, typed objects."""
