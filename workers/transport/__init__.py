"""Transports: octets between a descriptor and an AMQP connection."""
