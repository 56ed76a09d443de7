"""Connections of a worker: to clients, brokers and other routers."""
