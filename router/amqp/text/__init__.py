"""AMQP as text, for logs and traces: values, frames, messages. No input of a peer makes it fail."""
