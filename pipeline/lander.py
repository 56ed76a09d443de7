"""Lander: consumes messages of addresses, writes them to segments, and then accepts them.

There is one receiver for each address, on its own session. Its task takes the received deliveries when a batch is due.
A thread encodes the batch, writes it and waits for the disk; then one disposition settles it. Further deliveries
arrive meanwhile. A crash at any instruction therefore loses nothing: deliveries that were not accepted return to their
senders. Deliveries written but not yet accepted are landed twice.

    due: enough rows or octets, the oldest delivery exceeds the interval, a burst has ended, all credit is used, or the
        lander ends
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

from sluice.pipeline.bulk import WINDOW, BulkState
from sluice.pipeline.bulk_receiver import Batch
from sluice.pipeline.errors import LandingError, LockedError, PipelineError
from sluice.pipeline.merging import LogMerger
from sluice.pipeline.segments import LANDER, LOCK, Landing, LandingLog, Segment
from sluice.pipeline.stores import StoreLock
from sluice.pipeline.units import octets_text
from sluice.pipeline.writer import SegmentWriter
from sluice.router.client import (
    Accepted,
    AsyncConnection,
    Backoff,
    ClientError,
    LinkDetachedError,
    Released,
    Terminus,
    aconnect,
)

QUIET = 0.05  # fraction of the interval; a burst before such a pause is landed early: its senders wait for outcomes
BURST = 100  # deliveries; fewer do not count as a burst
REFRESH = 1.0  # seconds between checks of the readers' progress
RENEW = 15.0  # seconds between renewals of the lock
BELOW_HIGH = 0.9  # fraction of `stage_high` below which credit is granted again
MEMORY_FACTOR = 4  # upper bound of octets in memory, about, in multiples of `land_octets`
FIRST_WINDOW = 1000  # deliveries; credit before the size of messages is known
MERGE_EVERY = 1.0  # seconds between searches for segments to merge
MERGE_RETRY = 30.0  # seconds after a failed merge
WRITE_RETRY = Backoff(first=0.5, most=15.0)  # delays between attempts after a failed write
ATTACH_RETRY = Backoff(first=1.0, most=30.0)  # delays between attempts to attach to an address that refused the link
RECONNECT = Backoff(first=0.2, most=5.0)
GATHER = 0.002  # seconds; gathers small amounts of input into one read
CONNECT_PATIENCE = 20.0  # seconds to wait for the first connection


@dataclass(frozen=True)
class LanderOptions:
    """Options of a lander. client: options of `aconnect`. stage_high 0: no bound. merge_rows 0: merge nothing."""

    url: str
    addresses: tuple[str, ...]
    path: str
    lander: str
    land_rows: int = 50_000
    land_octets: int = 32 << 20
    interval: float = 0.2
    stage_high: int = 4 << 30
    merge_rows: int = 20_000
    max_message: int = 128 << 20
    client: dict[str, Any] = field(default_factory=dict)


@dataclass
class LandedCounts:
    """Counters of one address since the start of the lander."""

    deliveries: int = 0  # landed and accepted
    octets: int = 0
    segments: int = 0
    merged: int = 0  # segments that were merged
    released: int = 0
    lost: int = 0  # arrived on a link that was lost: return to their senders, but are landed if writing had begun
    staged: int = 0  # octets of segments that no group has read
    oldest: int | None = None  # landing time of the oldest of these segments, in ms


class AddressLander:
    """Receiver of one address. Owner: its task, `run`."""

    def __init__(self, lander: "Lander", address: str, writer: SegmentWriter) -> None:
        self.lander = lander
        self.options = lander.options
        self.address = address
        self.writer = writer
        self.merger = LogMerger(lander.landing, writer.log.key, writer.identity, lander.options.merge_rows)
        self.merge_at = 0.0  # time of the next merge (monotonic)
        self.merge_failing = False
        self.counts = LandedCounts()
        self.window = min(FIRST_WINDOW, self.options.land_rows)
        self.state: BulkState | None = None
        self._rejected = 0  # deliveries that earlier links rejected
        self.since: float | None = None  # arrival (monotonic) of the oldest delivery not yet taken
        self.in_burst = False  # the present deadline is that of a burst
        self.writing = 0  # deliveries in the batch that is being written
        self.writing_octets = 0
        self.attached_once = False
        self.trouble: OSError | None = None  # last write error; no credit while it is set
        self.failures = 0

    @property
    def octets_in_memory(self) -> int:
        """Octets in memory."""
        return self.writing_octets + (self.state.octets if self.state is not None else 0)

    @property
    def rejected(self) -> int:
        """Number of deliveries that were rejected because they were too long."""
        return self._rejected + (self.state.rejected if self.state is not None else 0)

    @property
    def memory_limit_reached(self) -> bool:
        """True if the bound on memory is reached, whatever the size of the messages that credit is open for."""
        return self.octets_in_memory >= self.options.land_octets * MEMORY_FACTOR

    async def run(self) -> None:
        """Receive and land until the lander ends.

        Raises PipelineError for an address that is refused from the beginning, LandingError, and ClientError for a
        connection that is not reopened.
        """
        refusals = 0
        session = self.lander.connection.session(WINDOW).state
        while not self.lander.ending:
            self._rejected = self.rejected
            self.state = state = BulkState(
                session,
                name=self.writer.link,
                source=Terminus(self.address),
                target=Terminus(),
                max_message_size=self.options.max_message,
            )
            session.add(state)
            try:
                await self._land(state)
                refusals = 0
            except LinkDetachedError as error:
                if not self.attached_once:
                    raise PipelineError(f"the router refuses address {self.address!r}: {error}") from error
                if state.answer is not None and not state.answer.refused:
                    refusals = 0
                delay = ATTACH_RETRY.delay(refusals) or 0.0
                refusals += 1
                self.lander.say(f"{self.address}: {error}; retried in {delay:.0f} s")
                await self.lander.pause(delay)

    async def _land(self, state: BulkState) -> None:
        while True:
            due = await self._wait(state)
            if due:
                used_up = state.credit == 0
                batch = state.take()
                self.since = None
                if batch is not None:
                    self._adapt_window(batch, used_up)
                    await self._write(state, batch)
            self.grant(state)
            if self.lander.ending and not state.rows:
                return

    async def _wait(self, state: BulkState) -> bool:
        """Wait until a batch is due or credit may have changed. Return True if a batch is due."""
        seen = self.lander.changes, state.attached

        def look() -> str:
            if state.attached and not self.attached_once:
                self.attached_once = True
                return "credit"
            state.check()
            if state.rows == 0:
                self.since = None
                return "credit" if self.lander.ending or seen != (self.lander.changes, state.attached) else ""
            if self._enough(state):
                return "due"
            if self.since is None:
                self.since = time.monotonic()
                return "timer"
            return "timer" if self._burst_begins(state) else ""

        while True:
            timeout = self._time_left(state)
            try:
                found = await self.lander.connection.wait(look, timeout)
            except TimeoutError:
                if not self._time_left(state):
                    return True
            else:
                if found != "timer":
                    return found == "due"

    def _time_left(self, state: BulkState) -> float | None:
        """Return the seconds until the present deliveries are due if no more arrive; 0: they are due."""
        if self.since is None or not state.rows:
            return None
        end = self.since + self.options.interval
        self.in_burst = state.rows >= BURST
        if self.in_burst:
            end = min(end, state.last_arrival + self.options.interval * QUIET)
        return max(end - time.monotonic(), 0.0)

    @property
    def awaits_messages(self) -> bool:
        """True if a message that has arrived is to be noticed before the present deadline."""
        state = self.state
        if state is None or not state.rows:
            return False
        if self.writing:
            return self.memory_limit_reached and state.credit > 0
        return self.since is None or self._burst_begins(state) or self._enough(state)

    def _burst_begins(self, state: BulkState) -> bool:
        return state.rows >= BURST and not self.in_burst

    def _enough(self, state: BulkState) -> bool:
        return (
            state.rows >= self.options.land_rows
            or state.octets >= self.options.land_octets
            or state.credit == 0
            or self.lander.ending
        )

    async def _write(self, state: BulkState, batch: Batch) -> None:
        self.writing, self.writing_octets = batch.rows, batch.octets
        self.grant(state)
        try:
            if batch.link.ended:
                self.counts.lost += batch.rows
                return
            await self._write_and_settle(state, batch)
        finally:
            self.writing = self.writing_octets = 0

    async def _write_and_settle(self, state: BulkState, batch: Batch) -> None:
        try:
            segment = await self._written(state, batch)
        except OSError as error:
            self.trouble = error
            state.flow(0)
            if state.settle(batch, Released()):
                self.counts.released += batch.rows
            self.failures += 1
            delay = WRITE_RETRY.delay(min(self.failures - 1, 10)) or 0.0
            text = f"{self.address}: a segment cannot be written: {error}; {batch.rows} messages are released"
            self.lander.say(f"{text}, retried in {delay:.1f} s")
            await self.lander.pause(delay)
            self.trouble = None
            return
        self.failures = 0
        self.counts.segments += 1
        self.counts.staged += segment.octets
        if self.options.merge_rows:
            self.merger.add(segment)
        self.lander.hold()
        if state.settle(batch, Accepted()):
            self.counts.deliveries += batch.rows
            self.counts.octets += batch.octets
        else:
            self.counts.lost += batch.rows

    async def merge(self) -> None:
        """Merge the small segments that are due, and delete those that were merged before."""
        more = time.monotonic() >= self.merge_at
        while more and not self.lander.ending:
            try:
                more = await asyncio.get_running_loop().run_in_executor(self.lander.merges, self._merge_run)
            except (OSError, LandingError) as error:
                self.merge_failing = True
                self.merge_at = time.monotonic() + MERGE_RETRY
                text = f"{self.address}: segments cannot be merged: {error}; nothing is lost"
                self.lander.say(f"{text}, retried in {MERGE_RETRY:.0f} s")
                return
            self.merge_failing = False
            self.counts.merged = self.merger.segments

    def _merge_run(self) -> bool:
        return self.merger.work(lambda text: self.lander.say(f"{self.address}: {text}"))

    async def _written(self, state: BulkState, batch: Batch) -> Segment:
        """Write a batch in a thread.

        Withdraw the credit if too much arrives meanwhile. Raises OSError, LandingError.
        """
        connection = self.lander.connection
        # A write that has begun is completed: cancelling waits for the disk.
        task = asyncio.get_running_loop().run_in_executor(self.lander.threads, self.writer.write, batch)
        task.add_done_callback(lambda _: connection.progress())
        while not task.done():
            await connection.wait(lambda: task.done() or (self.memory_limit_reached and state.credit > 0), None)
            self.grant(state)
        return task.result()

    def _adapt_window(self, batch: Batch, used_up: bool) -> None:
        """Adapt the window to cover one batch being collected and one being written, as far as memory allows.

        If all credit was used up, the window doubles.
        """
        most = self.options.land_octets * MEMORY_FACTOR // max(batch.octets // batch.rows, 1)
        wanted = self.window * 2 if used_up else 2 * batch.rows
        self.window = max(min(max(wanted, 2 * self.options.land_rows), most), 1)

    def grant(self, state: BulkState) -> None:
        """Grant, keep or withdraw credit for the present state."""
        if not state.attached:
            return
        credit = state.credit
        if self.lander.held or self.trouble is not None or self.lander.ending or self.memory_limit_reached:
            if credit:
                state.flow(0)
            return
        room = max(self.window - state.rows - self.writing, 0)
        if room > credit + self.window // 4 or (room and not credit) or credit > 2 * room + FIRST_WINDOW:
            state.flow(room)


class Lander:
    """Process that lands several addresses. `run` returns after `end`."""

    def __init__(self, options: LanderOptions, say: Callable[[str], None] | None = None) -> None:
        if not LANDER.fullmatch(options.lander):
            raise LandingError(f"lander id {options.lander!r}: expected letters, digits, '.', '_' and '-', 100 at most")
        if len(set(options.addresses)) != len(options.addresses):
            raise LandingError("an address is given twice")
        self.options = options
        self.say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self.landing: Landing
        self.connection: AsyncConnection
        self.threads = ThreadPoolExecutor(min(len(options.addresses), 4), "landing")
        self.looks = ThreadPoolExecutor(1, "readers")
        self.merges = ThreadPoolExecutor(1, "merging")
        self.links: list[AddressLander] = []
        self.ending = False
        self.held = False  # too much is staged: no credit
        self.holds = 0  # number of times that `held` became True
        self.changes = 0  # version of everything but deliveries that credit depends on
        self._ended = asyncio.Event()
        self._lock: StoreLock | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Run the lander until `end`. Raises PipelineError, ClientError, OSError."""
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
            self.merges.shutdown()
            if self._lock is not None:
                try:
                    self._lock.release()
                except OSError as error:
                    self.say(f"{self.options.path}: the lock cannot be released: {error}")  # the lock expires

    def _open(self) -> None:
        options = self.options
        try:
            self.landing = Landing.create(options.path)
            self.landing.store.make_folder(options.lander)
            try:
                self._lock = self.landing.store.lock(f"{options.lander}/{LOCK}")
            except LockedError as error:
                raise LockedError(
                    f"lander {options.lander!r} is already running: {error}; give this lander another --id"
                ) from None
            for number, address in enumerate(options.addresses):
                writer = SegmentWriter(self.landing, LandingLog(options.lander, address), f"{options.lander}-{number}")
                self.links.append(AddressLander(self, address, writer))
            warm_up()
            self._look()
        except OSError as error:
            raise LandingError(f"{options.path}: {error.strerror or error}") from error

    async def _connect(self) -> AsyncConnection:
        options = dict(self.options.client)
        options.setdefault("container", f"sluice-lander-{self.options.lander}")
        # No retry for the first connection: a wrong URL must be reported at once.
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
        connection.awaited = lambda: any(link.awaits_messages for link in self.links)
        return connection

    async def _work(self, ready: Callable[[], None] | None) -> None:
        tasks = {asyncio.create_task(link.run()) for link in self.links}
        helpers = {asyncio.create_task(self._refresh()), asyncio.create_task(self._ready(ready))}
        if self.options.merge_rows:
            helpers.add(asyncio.create_task(self._merge()))
        try:
            await self._first_error(tasks, helpers)
        finally:
            self.end()
            for task in (*tasks, *helpers):
                task.cancel()
            await asyncio.gather(*tasks, *helpers, return_exceptions=True)

    async def _first_error(self, tasks: set[asyncio.Task[None]], helpers: set[asyncio.Task[None]]) -> None:
        """Wait until all of `tasks` have ended. Raise the first error of any task or helper."""
        waiting = tasks | helpers
        while tasks & waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def end(self) -> None:
        """Stop receiving, land and settle the deliveries at hand, then end."""
        self.ending = True
        for link in self.links:
            link.merger.stop.set()
        self._ended.set()
        self.changed()

    def end_by_signals(self) -> None:
        """End on the first SIGTERM or SIGINT. A second signal of the same kind takes effect at once."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: signal.Signals) -> None:
        asyncio.get_running_loop().remove_signal_handler(number)
        self.say(f"{number.name}: landing the messages that have arrived, then ending")
        self.end()

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the lander ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)

    # -- state shared by the links -------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Make all links recompute their credit."""
        self.changes += 1
        if hasattr(self, "connection"):
            self.connection.progress()

    @property
    def staged(self) -> int:
        """Octets landed and not read, plus octets in memory."""
        return sum(link.counts.staged + link.octets_in_memory for link in self.links)

    def _look(self) -> None:
        """Read the progress of the readers. Raises OSError, LandingError."""
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
                text = f"the progress of readers of {self.options.path} cannot be checked: {error}"
                self.say(text)  # the figures of the last check remain

    async def _merge(self) -> None:
        """Merge segments until the lander ends."""
        while not self.ending:
            for link in self.links:
                await link.merge()
            await self.pause(MERGE_EVERY)

    def hold(self) -> None:
        high = self.options.stage_high
        if not high:
            return
        held = self.staged >= (high * BELOW_HIGH if self.held else high)
        if held != self.held:
            self.held = held
            self.holds += held
            self.say(
                f"{octets_text(self.staged)} are staged and not read, so the router gets no credit"
                if held
                else f"only {octets_text(self.staged)} are staged now, so the router gets credit again"
            )
            self.changed()

    async def _ready(self, ready: Callable[[], None] | None) -> None:
        await self.connection.wait(lambda: all(link.attached_once for link in self.links), None)
        if ready is not None:
            ready()


def warm_up() -> None:
    """Write a Parquet file to memory: the first one of a process takes a quarter of a second."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"one": [1]}), pa.BufferOutputStream(), compression="zstd")
