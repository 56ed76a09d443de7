"""`sluice top`: live view of a router, from management data."""

import argparse
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sluice.router.cli.client import ManagementClient
from sluice.router.cli.options import Parser, add_connection_options, add_target_options, target
from sluice.router.cli.output import raw_output, to_json
from sluice.router.cli.tool import run_tool
from sluice.router.cli.top_line import Frame
from sluice.router.cli.top_network import NetworkSample, render_network, take_network_sample
from sluice.router.cli.top_screen import Screen
from sluice.router.cli.top_state import HELP, NETWORK, ROUTER, SORTS, TopState
from sluice.router.cli.top_view import (
    RouterSample,
    render_frame,
    render_help,
    render_status,
    sample_as_map,
    take_sample,
)

DEFAULT_INTERVAL: Final = 2.0  # seconds between frames
DEFAULT_ROWS: Final = 10  # addresses and links shown
_END: Final = "\x04"


def main(words: Sequence[str] | None = None, program: str = "sluice top") -> int:
    """Run the command; return the exit code."""
    options = parser(program).parse_args(words)
    return run_tool(lambda: _run(options), program, options)


def parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = Parser(
        program,
        "Live view of a router, or of its network: rates, workers, the busiest addresses and links. Press ? for the "
        "keys, q to quit.",
    )
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
    made.add_argument("--sort", choices=SORTS, default=SORTS[0], help="order of addresses and links (%(default)s)")
    made.add_argument("--filter", metavar="TEXT", default="", help="show addresses, links and vhosts with TEXT in them")
    made.add_argument("--network", action="store_true", help="begin with the routers of the network")
    made.add_argument("--json", action="store_true", help="with --once: print two samples of the router as JSON")
    add_target_options(made)
    add_connection_options(made)
    return made


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 3600")
    return seconds


def _run(options: argparse.Namespace) -> int:
    state = TopState(options.sort, options.filter, page=NETWORK if options.network else ROUTER)
    with ManagementClient(target(options)) as client:
        view = _View(client, state, options.rows)
        if options.once:
            select.select([], [], [], options.interval)
            if options.json:
                print(to_json(view.as_maps(), 2))
            else:
                Screen(raw_output()).print(view.next())
            return 0
        with _keys() as keyboard:
            try:
                _watch(view, options.interval, keyboard)
            except KeyboardInterrupt:
                pass  # Ctrl-C ends the view
    return 0


class _View:
    """Frames of the page that is shown. Owner: `_run`."""

    def __init__(self, client: ManagementClient, state: TopState, rows: int) -> None:
        """Take the first sample of the page."""
        self.state: Final = state
        self._client = client
        self._rows = rows
        self._router: tuple[RouterSample, RouterSample] | None = None  # latest and previous sample
        self._network: tuple[NetworkSample, NetworkSample] | None = None
        self._sample()

    def _sample(self) -> None:
        """Take a sample of the page. Samples of the other page become too old to give rates, and are dropped."""
        if self.state.page == NETWORK:
            network = take_network_sample(self._client)
            self._network = network, network if self._network is None else self._network[0]
            self._router = None
        elif self.state.page == ROUTER:
            router = take_sample(self._client)
            self._router = router, router if self._router is None else self._router[0]
            self._network = None

    def next(self) -> Frame:
        """Take a sample and return its frame."""
        self._sample()
        return self.frame()

    def frame(self) -> Frame:
        """Return the frame of the latest sample."""
        if self.state.page == HELP:
            return render_help()
        if self.state.page == NETWORK:
            if self._network is None:
                self._sample()
            assert self._network is not None
            return [*render_network(*self._network, self._rows, self.state), render_status(self.state)]
        if self._router is None:
            self._sample()
        assert self._router is not None
        return [*render_frame(*self._router, self._rows, self.state), render_status(self.state)]

    def as_maps(self) -> list[dict[str, Any]]:
        """Take a sample of the router; return the previous one and this one as plain values."""
        self.state.page = ROUTER
        before = self._router[0] if self._router is not None else take_sample(self._client)
        return [sample_as_map(before), sample_as_map(take_sample(self._client))]


def _watch(view: _View, seconds: float, keyboard: int | None) -> None:
    """Show frames until a key ends the view."""
    screen = Screen(raw_output())
    with screen.shown():
        screen.show(view.frame())
        while True:
            pressed = _pressed(keyboard, seconds)
            if pressed is not None and view.state.press(pressed):
                return
            redrawn: Callable[[], Frame] = view.next if pressed in (None, " ") else view.frame
            screen.show(redrawn())


def _pressed(keyboard: int | None, seconds: float) -> str | None:
    """Wait for keys. Return them, None if there were none, and a key that ends the view at the end of the input."""
    if keyboard is None:
        select.select([], [], [], seconds)
        return None
    ready, _, _ = select.select([keyboard], [], [], seconds)
    if not ready:
        return None
    return os.read(keyboard, 64).decode(errors="replace") or _END


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
