"""Encoded AMQP values that attaches and their answers contain."""

from typing import Final

NULL: Final = b"\x40"
TRUE: Final = b"\x41"
SESSION_END: Final = b"\xa3\x0bsession-end"
