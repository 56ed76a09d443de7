"""WebSocket (RFC 6455) for AMQP: frames, and the HTTP requests and answers that come before them."""
