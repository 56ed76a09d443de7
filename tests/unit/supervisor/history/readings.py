"""Readings of figures for tests."""

from sluice.supervisor.history.figures import FIGURES, FigureKind, FigureReading


def reading(clock: float, latency: list[int] | None = None, **values: float) -> FigureReading:
    """Return a reading in which all other figures are 0."""
    found = {figure.name: (figure.kind, values.pop(figure.name, 0.0)) for figure in FIGURES}
    assert not values, "no such figures"
    return FigureReading(
        clock=clock,
        counters={name: value for name, (kind, value) in found.items() if kind is FigureKind.RATE},
        quantities={name: value for name, (kind, value) in found.items() if kind is FigureKind.MEAN},
        latency=[0] * 32 if latency is None else latency,
        loads={},
    )
