"""Sessions for routed links, and link names in them: the cost of one more link does not grow with their number."""

from sluice.router.amqp.codec import encode_uint
from sluice.router.amqp.connection import Connection
from sluice.router.amqp.scheduler import Scheduler
from sluice.router.amqp.session import Session
from sluice.router.links.consumer_link import ConsumerLink
from sluice.workers.connections.routed_sessions import RoutedSessions

LINKS = 200


class CountingSession(Session):
    """Session that counts the checks for room."""

    checks = 0

    @property
    def room(self):
        CountingSession.checks += 1
        return super().room


class Name(str):
    """Link name that counts the names derived from it."""

    made = 0

    def __format__(self, how):
        Name.made += 1
        return super().__format__(how)


def session(kind=Session):
    """Return a session that the peer has begun."""
    begin = [b"\x40", encode_uint(0), encode_uint(100), encode_uint(100)]
    return kind(Connection(Scheduler(), None), 0, begin, None)


def test_links_of_same_name_get_distinct_names_cheaply():
    ours = session()
    names: set[str] = set()
    for _ in range(LINKS):
        chosen = ours.free_name(Name("same"), True)
        ours.add_link(ConsumerLink(capacity=1, settles=False, annotations=True), str(chosen), len(names), True)
        names.add(str(chosen))
    assert len(names) == LINKS
    assert Name.made <= LINKS


def test_links_of_one_client_share_session_cheaply():
    sessions = RoutedSessions()
    begun = []

    def begin():
        begun.append(session(CountingSession))
        return begun[-1]

    for number in range(LINKS):
        taken = sessions.take("client", begin)
        assert taken is not None
        taken.add_link(ConsumerLink(capacity=1, settles=False, annotations=True), f"l{number}", number, True)
    assert len(begun) == 1
    assert CountingSession.checks <= 2 * LINKS
