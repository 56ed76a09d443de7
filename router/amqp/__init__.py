"""The AMQP 1.0 engine: bytes in, events and bytes out. No socket, clock, thread or log inside."""
