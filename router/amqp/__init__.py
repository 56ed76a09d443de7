"""AMQP 1.0 engine: octets in, events and octets out. It uses no socket, clock, thread or log."""
