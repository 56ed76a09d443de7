"""State of `sluice top` that keys change: sorting, filter, position, page."""

from typing import Final

from msgspec import Struct

SORTS: Final = ("rate", "total", "name")
ROUTER, NETWORK, HELP = "router", "network", "help"
KEYS: Final = (
    ("q, Ctrl-C", "quit"),
    ("s", "sort addresses and links: by rate, by total, by name"),
    ("/", "filter by a part of the address, link or vhost; Enter applies, Esc clears"),
    ("j, k, arrows", "scroll down and up; g: to the first row"),
    ("n", "the routers of the network, and back"),
    ("?", "this help, and back"),
    ("space", "next frame at once"),
)
_QUIT: Final = ("q", "Q", "\x03", "\x04")
_DOWN, _UP = ("j", "\x1b[B", "\x1bOB"), ("k", "\x1b[A", "\x1bOA")
_ESCAPE, _BACKSPACE = "\x1b", ("\x7f", "\x08")


class TopState(Struct):
    """Page, sorting and filter on the screen. Owner: the view.

    `typing` is the filter being typed; None: keys are commands.
    """

    sort: str = SORTS[0]
    filter: str = ""
    offset: int = 0  # first row of addresses and links
    page: str = ROUTER
    typing: str | None = None

    def press(self, keys: str) -> bool:
        """Handle the characters of one read from the terminal. Return whether the view ends."""
        if keys.startswith(_ESCAPE):  # a sequence is a single key
            self._escape(keys)
            return False
        return any(self._key(key) for key in keys)

    def matches(self, *texts: str) -> bool:
        """Return whether the filter is a part of one of these texts, whatever the case."""
        return not self.filter or any(self.filter.lower() in text.lower() for text in texts)

    def _escape(self, keys: str) -> None:
        if keys in _DOWN or keys in _UP:
            self._scroll(1 if keys in _DOWN else -1)
        elif keys == _ESCAPE:
            self.filter, self.typing, self.offset = "", None, 0

    def _key(self, key: str) -> bool:
        if self.typing is not None and key not in ("\x03", "\x04"):
            self._type(key)
            return False
        if key in _QUIT:
            return True
        if key in (*_DOWN, *_UP):
            self._scroll(1 if key in _DOWN else -1)
        elif key == "g":
            self.offset = 0
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "/":
            self.typing = ""
        elif key in ("n", "?"):
            page = NETWORK if key == "n" else HELP
            self.page = ROUTER if self.page == page else page
        return False

    def _type(self, key: str) -> None:
        """Handle a key while the filter is typed."""
        assert self.typing is not None
        if key in ("\r", "\n"):
            self.filter, self.typing, self.offset = self.typing, None, 0
        elif key in _BACKSPACE:
            self.typing = self.typing[:-1]
        elif key.isprintable():
            self.typing += key

    def _scroll(self, rows: int) -> None:
        self.offset = max(self.offset + rows, 0)
