"""Base class of control messages."""

from msgspec import Struct


class ControlMessage(Struct, tag_field="t", tag=str.lower, omit_defaults=True, gc=False):
    """Base class of all messages of the control channel. The type on the wire is the class name in lower case."""

    @property
    def kind_name(self) -> str:
        """Name of the message type, as on the wire."""
        return type(self).__name__.lower()
