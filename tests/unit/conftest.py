"""Unit tests start nothing: a test that starts a process is marked `starts`, or fails.

The Hypothesis profile `quick` (make test-quick and make test) tries fewer examples, also where a
test asks for many.
"""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

MANY_DESCRIPTORS: Final = 100
STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})


class Watch:
    """Notes each start of a process while an unmarked test runs. Python removes no audit hook, so there is one."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in STARTS:
            self.seen.append(event)


@pytest.fixture(scope="session")
def _watch() -> Watch:
    return Watch()


@pytest.fixture(autouse=True)
def _starts_nothing(request: pytest.FixtureRequest, _watch: Watch) -> Iterator[None]:
    _watch.seen.clear()
    _watch.on = request.node.get_closest_marker("starts") is None
    yield
    _watch.on = False
    assert not _watch.seen, f"a unit test without the mark `starts` started a process: {_watch.seen}"


class Descriptors:
    """Of tests that leave loops, logs and regions to the garbage collector, which does not know that they are few."""

    def __init__(self) -> None:
        self.left = self.lowest()

    @staticmethod
    def lowest() -> int:
        """The number of the next one."""
        with open(os.devnull, "rb") as file:
            return file.fileno()

    def bound(self) -> None:
        if self.lowest() > self.left + MANY_DESCRIPTORS:
            gc.collect()
            self.left = self.lowest()


@pytest.fixture(scope="session")
def _descriptors() -> Descriptors:
    return Descriptors()


@pytest.fixture(autouse=True)
def _leaves_no_router(_descriptors: Descriptors) -> Iterator[None]:
    before = _open_routers()
    yield
    for router in _open_routers() - before:
        router.abandon()
    _descriptors.bound()


def _open_routers() -> set[Any]:
    host = sys.modules.get("tests.unit.engine.host")
    return set(host.Router.all_open) if host else set()


#: Examples of each property in the profile `quick`.
QUICK_EXAMPLES: Final = 10
#: Where Hypothesis keeps the settings of a test.
OWN_SETTINGS: Final = "_hypothesis_internal_use_settings"
#: How fast a machine that others use, too, makes examples says nothing of a test.
SLOW: Final = (HealthCheck.too_slow,)
settings.register_profile("all", deadline=None, suppress_health_check=SLOW)
settings.register_profile("quick", max_examples=QUICK_EXAMPLES, deadline=None, suppress_health_check=SLOW)
if settings.get_current_profile_name() == "default":
    settings.load_profile("all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test's own settings come before those of a profile, so `quick` bounds them here."""
    if settings.get_current_profile_name() != "quick":
        return
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, OWN_SETTINGS, None)
        if own is not None and own.max_examples > QUICK_EXAMPLES:
            setattr(test, OWN_SETTINGS, settings(own, max_examples=QUICK_EXAMPLES))
