"""AMQP as text, for logs and traces: values, frames, messages; nothing that a peer sends makes it fail."""
