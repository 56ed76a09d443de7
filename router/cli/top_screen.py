"""Screen of `sluice top`: writes frames to a terminal, or as plain lines to a file or pipe."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from sluice.router.cli.output import encodable, one_line
from sluice.router.cli.top_line import BOLD, DIM, PLAIN, RED, REVERSE, YELLOW, Frame, Line, frame_lines

PLAIN_WIDTH: Final = 160  # cells of a line in a file or pipe
_LEAST_WIDTH: Final = 20
#: Parameters of the control sequence SGR (ECMA-48, 8.3.117).
_SGR: Final = {PLAIN: "", BOLD: "1", DIM: "2", REVERSE: "7", RED: "31", YELLOW: "33"}
_RESET: Final = "\x1b[m"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
#: The alternate screen of xterm without its cursor, and back. The first one keeps the text before the view.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Screen:
    """Writer of frames. Texts of clients reach the terminal escaped: only the layout has control sequences."""

    def __init__(self, output: TextIO) -> None:
        """output: stream without escaping."""
        self._output = output
        self._terminal = output.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._styles = self._terminal and not os.environ.get("NO_COLOR")

    def print(self, frame: Frame) -> None:
        """Write a whole frame below the previous output."""
        self._write("".join(f"{self._styled(line)}\n" for line in frame_lines(frame, self._size()[0])))

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Use the whole terminal for `show`, and restore it at the end."""
        if not self._terminal:
            yield
            return
        try:
            self._write(_ENTER)
            yield
        finally:
            self._write(_LEAVE)

    def show(self, frame: Frame) -> None:
        """Replace the frame on the terminal, without what is below its last row. Elsewhere, write the whole frame."""
        if not self._terminal:
            self.print(frame)
            return
        width, height = self._size()
        lines = [self._styled(line) for line in frame_lines(frame, width)][:height]
        self._write(_HOME + "\n".join(f"{line}{_REST_OF_LINE}" for line in lines) + _REST_OF_SCREEN)

    def _size(self) -> tuple[int, int]:
        """Return the columns and rows."""
        size = shutil.get_terminal_size((PLAIN_WIDTH, 1))
        return (max(size.columns, _LEAST_WIDTH), size.lines) if self._terminal else (PLAIN_WIDTH, size.lines)

    def _styled(self, line: Line) -> str:
        text = encodable(one_line(line.text), self._output)
        return f"\x1b[{_SGR[line.style]}m{text}{_RESET}" if self._styles and line.style else text

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()
