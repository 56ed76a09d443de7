"""Spans of sampled deliveries: trace context in messages, sampling, and the spans that a worker records."""
