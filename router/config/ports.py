"""Ports in configurations: numbers and service names."""

import socket

from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity

PORTS = {"amqp": 5672, "amqps": 5671}  # IANA ports; available even without /etc/services
MAX_PORT = 65535


def port_number(text: str, entity: Entity, problems: Problems) -> int:
    """Return the number of a port given as number or service name; 0 after an error."""
    if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_PORT)) and int(text) <= MAX_PORT:
        return int(text)
    if text in PORTS:
        return PORTS[text]
    try:
        return socket.getservbyname(text, "tcp")
    except (OSError, ValueError):  # ValueError: a NUL in the name
        line = entity.line_of("port")
        problems.error(line, f"{entity.type.long_name}: port '{text}' is neither 0 to {MAX_PORT} nor a known service")
        return 0
