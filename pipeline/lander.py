"""The lander: takes messages of addresses, lands them as segments, and accepts them then.

One receiver an address, each on a session of its own. Its task takes what has come when it is due, a thread encodes it,
writes it and waits for the disk, and one disposition settles it; meanwhile the next deliveries come. So a crash at any
instruction loses nothing: what was not accepted goes back to its senders. What had been written by then comes again.

    due: rows or octets enough, the oldest is older than the interval, a burst has ended, all credit is used, the lander
        ends
    credit: a window that follows the rate and the size of messages; none while too much is staged, or writing fails
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import LandingError, LockedError, PipelineError
from pipeline.segments import LANDER, LOCK, Landing, Log, Segment
from pipeline.stores import Lock
from pipeline.units import octets_text
from pipeline.writer import SegmentWriter
from router.client import (
    Accepted,
    AsyncConnection,
    Backoff,
    ClientError,
    LinkDetachedError,
    Released,
    Terminus,
    aconnect,
)
from router.client.bulk import WINDOW, BulkState

QUIET = 0.05  # of the interval: a burst that has ended by then is landed, its senders wait for outcomes
BURST = 100  # deliveries
REFRESH = 1.0  # seconds between looks at what readers have read
RENEW = 15.0  # … between renewals of the lock
BELOW_HIGH = 0.9  # of `stage_high`: credit is granted again below it
IN_HAND = 4  # times `land_octets`: the most that is to be in memory, about
FIRST_WINDOW = 1000  # deliveries, before the size of messages is known
TROUBLE = Backoff(first=0.5, most=15.0)  # between attempts after a failure to write
REFUSED = Backoff(first=1.0, most=30.0)  # … to attach to an address that was refused
RECONNECT = Backoff(first=0.2, most=5.0)
GATHER = 0.002  # between reads of little
CONNECT_PATIENCE = 20.0  # seconds until the first connection


@dataclass(frozen=True)
class LanderOptions:
    """client: options of `aconnect`. stage_high 0: no bound."""

    url: str
    addresses: tuple[str, ...]
    path: str
    lander: str
    land_rows: int = 50_000
    land_octets: int = 32 << 20
    interval: float = 0.2
    stage_high: int = 4 << 30
    max_message: int = 128 << 20
    client: dict[str, Any] = field(default_factory=dict)


@dataclass
class Counts:
    """Of one address, since the lander began."""

    deliveries: int = 0  # landed and accepted
    octets: int = 0
    segments: int = 0
    released: int = 0
    lost: int = 0  # came by a link that was lost: back with their senders; landed all the same, if it was too late
    staged: int = 0  # octets of segments that are not read
    oldest: int | None = None  # ms: when the oldest of them landed


class AddressLander:
    """One address. Owner: its task, `run`."""

    def __init__(self, lander: "Lander", address: str, writer: SegmentWriter) -> None:
        self.lander = lander
        self.options = lander.options
        self.address = address
        self.writer = writer
        self.counts = Counts()
        self.window = min(FIRST_WINDOW, self.options.land_rows)
        self.state: BulkState | None = None
        self.since: float | None = None  # when the oldest delivery that nobody took came
        self.quiet_rows = 0  # deliveries that were here …
        self.quiet_since = 0.0  # … and since when
        self.writing = 0  # deliveries that are being written
        self.writing_octets = 0
        self.attached_before = False
        self.trouble: OSError | None = None  # writing fails: no credit
        self.failures = 0

    @property
    def in_hand(self) -> int:
        """Octets in memory."""
        return self.writing_octets + (self.state.octets if self.state is not None else 0)

    @property
    def too_much(self) -> bool:
        """Is in memory, whatever the size of the messages for which there is credit."""
        return self.in_hand >= self.options.land_octets * IN_HAND

    async def run(self) -> None:
        """Until the lander ends. Raises PipelineError for an address that is refused from the beginning, LandingError,
        and ClientError for a connection that is not opened again."""
        refusals = 0
        session = self.lander.connection.session(WINDOW).state
        while not self.lander.ending:
            self.state = state = session.bulk_receiver(
                name=self.writer.link,
                source=Terminus(self.address),
                target=Terminus(),
                max_message_size=self.options.max_message,
            )
            try:
                await self._land(state)
                refusals = 0
            except LinkDetachedError as error:
                if not self.attached_before:
                    raise PipelineError(f"the router refuses address {self.address!r}: {error}") from error
                if state.answer is not None and not state.answer.refused:
                    refusals = 0
                delay = REFUSED.delay(refusals) or 0.0
                refusals += 1
                self.lander.say(f"{self.address}: {error}; again in {delay:.0f} s")
                await self.lander.pause(delay)

    async def _land(self, state: BulkState) -> None:
        while True:
            due = await self._wait(state)
            if due:
                used_up = state.credit == 0
                batch = state.take()
                self.since, self.quiet_rows = None, 0
                if batch is not None:
                    self._fit_window(batch, used_up)
                    await self._write(state, batch)
            self.grant(state)
            if self.lander.ending and not state.rows:
                return

    async def _wait(self, state: BulkState) -> bool:
        """Whether it is due to take what has come. False: look at the credit."""
        timeout = self._time_left(state)
        seen = self.lander.changes, state.attached

        def look() -> str:
            if state.attached and not self.attached_before:
                self.attached_before = True
                return "credit"
            state.check()
            if state.rows == 0:
                self.since = None
                return "credit" if self.lander.ending or seen != (self.lander.changes, state.attached) else ""
            if self._enough(state):
                return "due"
            if self.since is None:
                self.since = time.monotonic()
            return "credit" if state.rows != self.quiet_rows else ""  # with another time to wait for

        try:
            return await self.lander.connection.wait(look, timeout) == "due"
        except TimeoutError:
            return True

    def _time_left(self, state: BulkState) -> float | None:
        """Seconds until what is here is due, whether or not more comes."""
        if self.since is None or not state.rows:
            return None
        at = time.monotonic()
        end = self.since + self.options.interval
        if state.rows != self.quiet_rows:
            self.quiet_rows, self.quiet_since = state.rows, at
        if state.rows >= BURST:
            end = min(end, self.quiet_since + self.options.interval * QUIET)
        return max(end - at, 0.0)

    def _enough(self, state: BulkState) -> bool:
        return (
            state.rows >= self.options.land_rows
            or state.octets >= self.options.land_octets
            or state.credit == 0
            or self.lander.ending
        )

    async def _write(self, state: BulkState, batch: Any) -> None:
        self.writing, self.writing_octets = batch.rows, batch.octets
        self.grant(state)
        try:
            if batch.link.ended:
                self.counts.lost += batch.rows
                return
            await self._write_then_settle(state, batch)
        finally:
            self.writing = self.writing_octets = 0

    async def _write_then_settle(self, state: BulkState, batch: Any) -> None:
        try:
            segment = await self._written(state, batch)
        except OSError as error:
            self.trouble = error
            state.flow(0)
            if state.settle(batch, Released()):
                self.counts.released += batch.rows
            self.failures += 1
            delay = TROUBLE.delay(min(self.failures - 1, 10)) or 0.0
            self.lander.say(f"{self.address}: cannot land: {error}; released {batch.rows}, again in {delay:.1f} s")
            await self.lander.pause(delay)
            self.trouble = None
            return
        self.failures = 0
        self.counts.segments += 1
        self.counts.staged += segment.octets
        self.lander.hold()
        if state.settle(batch, Accepted()):
            self.counts.deliveries += batch.rows
            self.counts.octets += batch.octets
        else:
            self.counts.lost += batch.rows

    async def _written(self, state: BulkState, batch: Any) -> Segment:
        """By a thread; too much that comes meanwhile takes the credit back. Raises OSError, LandingError."""
        connection = self.lander.connection
        # What was begun is ended: whoever cancels waits for the disk.
        task = asyncio.get_running_loop().run_in_executor(self.lander.threads, self.writer.write, batch)
        task.add_done_callback(lambda _: connection.progress())
        while not task.done():
            await connection.wait(lambda: task.done() or (self.too_much and state.credit > 0), None)
            self.grant(state)
        return task.result()

    def _fit_window(self, batch: Any, used_up: bool) -> None:
        """What comes while one batch is collected and another one written; more when that was too little. As far as
        memory goes."""
        most = self.options.land_octets * IN_HAND // max(batch.octets // batch.rows, 1)
        wanted = self.window * 2 if used_up else 2 * batch.rows
        self.window = max(min(max(wanted, 2 * self.options.land_rows), most), 1)

    def grant(self, state: BulkState) -> None:
        """Credit for what may come now."""
        if not state.attached:
            return
        credit = state.credit
        if self.lander.held or self.trouble is not None or self.lander.ending or self.too_much:
            if credit:
                state.flow(0)
            return
        room = max(self.window - state.rows - self.writing, 0)
        if room > credit + self.window // 4 or (room and not credit) or credit > 2 * room + FIRST_WINDOW:
            state.flow(room)


class Lander:
    """One process. `run` returns when it was told to end."""

    def __init__(self, options: LanderOptions, say: Callable[[str], None] | None = None) -> None:
        if not LANDER.fullmatch(options.lander):
            raise LandingError(f"lander id {options.lander!r}: expected letters, digits, '.', '_' and '-', 100 at most")
        if len(set(options.addresses)) != len(options.addresses):
            raise LandingError("an address is named twice")
        self.options = options
        self.say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self.landing: Landing
        self.connection: AsyncConnection
        self.threads = ThreadPoolExecutor(min(len(options.addresses), 4), "landing")
        self.looks = ThreadPoolExecutor(1, "readers")
        self.links: list[AddressLander] = []
        self.ending = False
        self.held = False  # too much is staged: no credit
        self.holds = 0  # times that it began to be
        self.changes = 0  # of what credit depends on beside deliveries
        self._ended = asyncio.Event()
        self._lock: Lock | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Raises PipelineError, ClientError, OSError."""
        try:
            self._open()
            self.connection = await self._connect()
            try:
                await self._work(ready)
            finally:
                await self.connection.close()
        finally:
            self.threads.shutdown()
            self.looks.shutdown()
            if self._lock is not None:
                try:
                    self._lock.release()
                except OSError as error:
                    self.say(f"{self.options.path}: {error}")  # it ends by itself

    def _open(self) -> None:
        options = self.options
        try:
            self.landing = Landing.create(options.path)
            self.landing.store.make_folder(options.lander)
            try:
                self._lock = self.landing.store.lock(f"{options.lander}/{LOCK}")
            except LockedError as error:
                raise LockedError(
                    f"lander {options.lander!r} runs already: {error}; give this one another --id"
                ) from None
            for number, address in enumerate(options.addresses):
                writer = SegmentWriter(self.landing, Log(options.lander, address), f"{options.lander}-{number}")
                self.links.append(AddressLander(self, address, writer))
            warm_up()
            self._look()
        except OSError as error:
            raise LandingError(f"{options.path}: {error.strerror or error}") from error

    async def _connect(self) -> AsyncConnection:
        options = dict(self.options.client)
        options.setdefault("container", f"sluice-lander-{self.options.lander}")
        # The first time it has to be there: a wrong URL is to be seen at once.
        try:
            connection = await aconnect(self.options.url, timeout=CONNECT_PATIENCE, **options)
        except ValueError as error:
            raise PipelineError(str(error)) from error
        except (TimeoutError, ClientError) as error:
            raise PipelineError(
                f"no connection to the router: {error if str(error) else 'it does not answer'}"
            ) from error
        connection.reconnect = RECONNECT
        connection.gather = GATHER
        return connection

    async def _work(self, ready: Callable[[], None] | None) -> None:
        tasks = {asyncio.create_task(link.run()) for link in self.links}
        helpers = {asyncio.create_task(self._refresh()), asyncio.create_task(self._ready(ready))}
        try:
            await self._first_error(tasks, helpers)
        finally:
            self.end()
            for task in (*tasks, *helpers):
                task.cancel()
            await asyncio.gather(*tasks, *helpers, return_exceptions=True)

    async def _first_error(self, tasks: set[asyncio.Task[None]], helpers: set[asyncio.Task[None]]) -> None:
        """Until all of `tasks` have ended, or one of them all has failed: that is raised."""
        waiting = tasks | helpers
        while tasks & waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def end(self) -> None:
        """Take no more, land and settle what is here, then end."""
        self.ending = True
        self._ended.set()
        self.changed()

    def end_by_signals(self) -> None:
        """SIGTERM and SIGINT end it; a second one at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        asyncio.get_running_loop().remove_signal_handler(number)
        self.say(f"{number.name}: landing what is here")
        self.end()

    async def pause(self, seconds: float) -> None:
        """Not longer than until it ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    # -- what its links need -------------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Credit is to be looked at again."""
        self.changes += 1
        if hasattr(self, "connection"):
            self.connection.progress()

    @property
    def staged(self) -> int:
        """Octets that are landed and not read, and those in memory."""
        return sum(link.counts.staged + link.in_hand for link in self.links)

    def _look(self) -> None:
        """What readers have read. Raises OSError, LandingError."""
        for link in self.links:
            link.counts.staged = link.writer.staged()
            link.counts.oldest = link.writer.oldest()

    async def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = time.monotonic()
        while True:
            self.hold()
            await asyncio.sleep(REFRESH)
            try:
                await loop.run_in_executor(self.looks, self._look)
                if self._lock is not None and time.monotonic() - renewed >= RENEW:
                    await loop.run_in_executor(self.looks, self._lock.renew)
                    renewed = time.monotonic()
            except OSError as error:
                self.say(f"{self.options.path}: {error}")  # what was read before holds

    def hold(self) -> None:
        high = self.options.stage_high
        if not high:
            return
        held = self.staged >= (high * BELOW_HIGH if self.held else high)
        if held != self.held:
            self.held = held
            self.holds += held
            self.say(
                f"{octets_text(self.staged)} are staged and not read: no more credit"
                if held
                else f"{octets_text(self.staged)} are staged: credit again"
            )
            self.changed()

    async def _ready(self, ready: Callable[[], None] | None) -> None:
        await self.connection.wait(lambda: all(link.attached_before for link in self.links), None)
        if ready is not None:
            ready()


def warm_up() -> None:
    """The first Parquet file of a process takes a quarter of a second."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"one": [1]}), pa.BufferOutputStream(), compression="zstd")
