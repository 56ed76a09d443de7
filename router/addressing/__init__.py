"""Addresses as text: keys, patterns, settings; and the paths between routers."""
