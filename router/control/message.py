"""What all control messages have in common."""

from msgspec import Struct


class Message(Struct, tag_field="t", tag=str.lower, omit_defaults=True, gc=False):
    """Base of all messages of the control channel."""

    @property
    def kind_name(self) -> str:
        """The name of its type, as on the wire."""
        return type(self).__name__.lower()
