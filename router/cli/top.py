"""`sluice top`: live view of a router, from management data."""

import argparse
import os
import select
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment

from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import printable, raw_output
from sluice.router.cli.tool import run_tool
from sluice.router.cli.top_view import RouterSample, render_frame, take_sample

DEFAULT_INTERVAL: Final = 2.0  # seconds between frames
DEFAULT_ROWS: Final = 10  # addresses and links shown
_WIDTH: Final = 160  # characters per line of a frame written to a file or pipe
_QUIT: Final = b"qQ\x03\x04"


def main(words: Sequence[str] | None = None, program: str = "sluice top") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(program, "Live view of a router: rates, workers, the busiest addresses and links. Press q to quit.")
    made.add_argument(
        "-i",
        "--interval",
        metavar="SECS",
        type=_seconds,
        default=DEFAULT_INTERVAL,
        help="seconds between frames (%(default)g)",
    )
    made.add_argument("--rows", metavar="N", type=int, default=DEFAULT_ROWS, help="rows in each table (%(default)s)")
    made.add_argument("--once", action="store_true", help="print one frame, measured over one interval, and exit")
    add_target_options(made)
    add_connection_options(made)
    return made


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 3600")
    return seconds


def _run(options: argparse.Namespace) -> int:
    with ManagementClient(target(options)) as client:
        before = take_sample(client)
        if options.once:
            select.select([], [], [], options.interval)
            _console(None if sys.stdout.isatty() else _WIDTH).print(
                EscapedFrame(render_frame(take_sample(client), before, options.rows))
            )
            return 0
        with _keys() as keyboard:
            try:
                _watch(client, before, options, keyboard)
            except KeyboardInterrupt:
                pass  # Ctrl-C ends the view
    return 0


def _console(width: int | None = None) -> Console:
    """Return the terminal, without markup in texts, since some texts are chosen by clients."""
    return Console(file=raw_output(), width=width, markup=False, emoji=False, highlight=False)


class EscapedFrame:
    """Frame whose texts are escaped. Only its own layout and styles produce control characters."""

    def __init__(self, render_frame: RenderableType) -> None:
        self._frame = render_frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._frame, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def _watch(client: ManagementClient, before: RouterSample, options: argparse.Namespace, keyboard: int | None) -> None:
    """Show frames until a key ends the view."""
    latest = before
    first = EscapedFrame(render_frame(latest, latest, options.rows))
    with Live(first, console=_console(), screen=True, auto_refresh=False) as live:
        while not _quit(keyboard, options.interval):
            before, latest = latest, take_sample(client)
            live.update(EscapedFrame(render_frame(latest, before, options.rows)), refresh=True)


def _quit(keyboard: int | None, seconds: float) -> bool:
    """Wait, and return whether a key that ends the view was pressed. Other keys end the wait."""
    if keyboard is None:
        select.select([], [], [], seconds)
        return False
    ready, _, _ = select.select([keyboard], [], [], seconds)
    if not ready:
        return False
    pressed = os.read(keyboard, 64)
    return not pressed or any(key in _QUIT for key in pressed)


@contextmanager
def _keys() -> Iterator[int | None]:
    """Yield a descriptor from which single keys can be read, or None without a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    keyboard = sys.stdin.fileno()
    settings = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)


if __name__ == "__main__":
    sys.exit(main())
