from collections.abc import Callable

from sluice.router.amqp.clock import Clock

class SpanFacts:
    def __init__(self, link: int, connection: int, address: bytes | None) -> None: ...

def use_tracer(
    used: Clock,
    known: dict[bytes, int],
    find: Callable[[bytes], int],
    activity: Callable[[], None],
    per_second: int,
    parents: bool,
) -> None: ...
def drain(most: int) -> bytes: ...
def end_overdue(age_ns: int) -> None: ...
def span_counts() -> tuple[int, int, int]: ...
