"""WebSocket (RFC 6455) for AMQP: frames, and the HTTP requests and responses of the opening handshake."""
