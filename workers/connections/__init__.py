"""The connections of a worker: of clients, brokers and other routers."""
