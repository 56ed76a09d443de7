from collections.abc import Callable

from sluice.router.amqp.clock import Clock

class SpanFacts:
    def __init__(
        self,
        link: int,
        connection: int,
        address: bytes | None,
        find: Callable[[bytes], tuple[int, bytes]] | None = None,
    ) -> None: ...

def use_tracer(used: Clock, activity: Callable[[], None], per_second: int, parents: bool) -> None: ...
def drain(most: int) -> bytes: ...
def end_overdue(age_ns: int) -> None: ...
def span_counts() -> tuple[int, int, int]: ...
