"""Ring of a history: one value of each figure for each of the last periods of one length.

Periods are aligned to the time of day. A value describes a whole period: a rate is the growth of its counter over it,
so that a ring of hours loses nothing of what a ring of seconds has counted.
"""

import base64
import math
from array import array
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from sluice.router.stats.latency import quantile
from sluice.supervisor.history.figures import FIGURES, NAMES, FigureKind, FigureReading, HistoryFigure

TYPE: Final = "d"  # of array: 8 octets, so that counts and octets are exact


class RingState(Struct):
    """State of a ring in a file. columns: octets of each array, in base64."""

    step: int
    size: int
    latest: Annotated[int, Meta(ge=0, le=1 << 40)]
    columns: dict[str, str]


class HistoryRing:
    """Ring of `size` periods of `step` seconds. Owner: the history."""

    def __init__(self, step: int, size: int) -> None:
        self.step: Final = step
        self.size: Final = size
        self._columns = {name: array(TYPE, [math.nan]) * size for name in NAMES}
        self._latest = 0  # number of the last period with values, in steps since the epoch; 0: none
        self._first: FigureReading | None = None  # reading at the end of the last period
        self._sums = dict.fromkeys(NAMES, 0.0)  # of quantities, in the present period
        self._readings = 0  # in the present period
        self._present = 0  # number of the present period

    def add(self, seconds: int, reading: FigureReading) -> None:
        """Add a reading at a time since the epoch, which may have been set back since the last one."""
        ended = seconds // self.step
        first = self._first
        if first is None or ended < self._present:
            self._begin(ended, reading)
            return
        self._readings += 1
        for name, value in reading.quantities.items():
            self._sums[name] += value
        if ended > self._present:
            self._advance(ended)
            for figure in FIGURES:
                self._columns[figure.name][ended % self.size] = self._value(figure, first, reading)
            self._begin(ended, reading)

    def _begin(self, ended: int, reading: FigureReading) -> None:
        """Begin the period after the period `ended`."""
        self._first, self._present, self._readings = reading, ended, 0
        for name in self._sums:
            self._sums[name] = 0.0

    def _advance(self, ended: int) -> None:
        """Make `ended` the last period. Periods without readings, also those after it, have no values."""
        if self._latest:
            low, high = sorted((self._latest, ended))
            for number in range(max(low + 1, high - self.size + 1), high + 1):
                for column in self._columns.values():
                    column[number % self.size] = math.nan
        self._latest = ended

    def _value(self, figure: HistoryFigure, first: FigureReading, last: FigureReading) -> float:
        name = figure.name
        if figure.kind is FigureKind.MEAN:
            return self._sums[name] / self._readings
        if figure.kind is FigureKind.RATE:
            return max(0.0, last.counters[name] - first.counters[name]) / (last.clock - first.clock)
        grown = [now - then for now, then in zip(last.latency, first.latency, strict=True)]
        within = quantile(grown, figure.share)
        return math.nan if within is None else within

    def read(self, names: Sequence[str], since: float = 0.0) -> tuple[int, dict[str, list[float | None]]]:
        """Return the values of periods that ended after `since`, oldest first, and the end of the first of them.

        None: no value. The end is in seconds since the epoch. Periods before the first reading are left out.
        """
        begin = max(self._latest - self.size, math.floor(since / self.step)) + 1
        numbers = [number % self.size for number in range(begin, self._latest + 1)]
        columns = {name: self._columns[name] for name in names}
        skipped = 0
        for index in numbers:
            if any(not math.isnan(column[index]) for column in self._columns.values()):
                break
            skipped += 1
        found = {
            name: [None if math.isnan(column[index]) else column[index] for index in numbers[skipped:]]
            for name, column in columns.items()
        }
        return (begin + skipped) * self.step, found

    def state(self) -> dict[str, Any]:
        """Return all values as plain data, for `restore`."""
        columns = {name: base64.b64encode(column.tobytes()).decode() for name, column in self._columns.items()}
        return {"step": self.step, "size": self.size, "latest": self._latest, "columns": columns}

    def restore(self, state: object) -> None:
        """Replace all values by those of `state`, if it is from a ring of the same form.

        Figures that it lacks have no values. Raises ValueError for an unsuitable state.
        """
        known = msgspec.convert(state, RingState)
        if (known.step, known.size) != (self.step, self.size):
            raise ValueError("periods of another length")
        columns = {}
        for name in NAMES:
            column = array(TYPE)
            if (text := known.columns.get(name)) is not None:
                column.frombytes(base64.b64decode(text, validate=True))
            columns[name] = column if len(column) == self.size else array(TYPE, [math.nan]) * self.size
        self._columns, self._latest = columns, known.latest
