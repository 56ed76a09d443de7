"""Tables of message handlers by message type, typed and checked for completeness."""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, get_args

from sluice.router.control.message import ControlMessage

M = TypeVar("M", bound=ControlMessage)
S = TypeVar("S")


class HandlerTable(Generic[S]):
    """Message handlers by type. A handler is called with the sender (`S`) and the message. Owner: the receiver."""

    __slots__ = ("_kinds", "by_type")

    def __init__(self, kinds: Any, but: Iterable[type[ControlMessage]] = ()) -> None:
        """Create a table for the union `kinds` of message types, except those in `but`."""
        self._kinds: frozenset[type[ControlMessage]] = frozenset(get_args(kinds)) - frozenset(but)
        #: Handlers for callers that find the one of a message themselves.
        self.by_type: dict[type[ControlMessage], Callable[[S, Any], None]] = {}

    def on(self, kind: type[M], handler: Callable[[S, M], None]) -> None:
        """Register `handler` for messages of this type. Raises ValueError for a duplicate or an unexpected type."""
        if kind not in self._kinds or kind in self.by_type:
            raise ValueError(f"{kind.__name__} already has a handler, or is not received here")
        self.by_type[kind] = handler

    def check_complete(self) -> None:
        """Raise ValueError if a message type has no handler."""
        missing = self._kinds - self.by_type.keys()
        if missing:
            raise ValueError(f"no handler for message types {', '.join(sorted(kind.__name__ for kind in missing))}")

    def handle(self, sender: S, message: ControlMessage) -> None:
        """Call the handler for the type of the message."""
        self.by_type[type(message)](sender, message)
