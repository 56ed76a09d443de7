"""Hooks and fixtures for unit and component tests: a test that starts a process must be marked `starts`.

The Hypothesis profile `quick` (make test-quick and make test) tries fewer examples, even where a test requests more.
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


class ProcessStartRecorder:
    """Recorder of process starts during unmarked tests.

    One serves the whole session because Python cannot remove an audit hook.
    """

    def __init__(self) -> None:
        self.recording = False
        self.starts: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.recording and event in STARTS:
            self.starts.append(event)


@pytest.fixture(scope="session")
def start_recorder() -> ProcessStartRecorder:
    """Recorder that serves all tests of a process."""
    return ProcessStartRecorder()


@pytest.fixture(autouse=True)
def fail_on_process_start(request: pytest.FixtureRequest, start_recorder: ProcessStartRecorder) -> Iterator[None]:
    """Fail a test without the mark `starts` that starts a process."""
    start_recorder.starts.clear()
    start_recorder.recording = request.node.get_closest_marker("starts") is None
    yield
    start_recorder.recording = False
    assert not start_recorder.starts, f"a test without the mark `starts` started a process: {start_recorder.starts}"


class DescriptorBound:
    """Bound for the file descriptors that tests leave open in loops, logs and regions.

    The garbage collector frees these, but does not know that descriptors are scarce.
    """

    def __init__(self) -> None:
        self.baseline = self.next_descriptor()

    @staticmethod
    def next_descriptor() -> int:
        """Return the number that the next opened descriptor gets."""
        with open(os.devnull, "rb") as file:
            return file.fileno()

    def collect_if_many(self) -> None:
        if self.next_descriptor() > self.baseline + MANY_DESCRIPTORS:
            gc.collect()
            self.baseline = self.next_descriptor()


@pytest.fixture(scope="session")
def descriptor_bound() -> DescriptorBound:
    """Bound for the descriptors of all tests of a process."""
    return DescriptorBound()


@pytest.fixture(autouse=True)
def bound_descriptors(descriptor_bound: DescriptorBound) -> Iterator[None]:
    """Free what a test has left open if its descriptors become many."""
    yield
    descriptor_bound.collect_if_many()


#: Examples of each property in the profile `quick`.
QUICK_EXAMPLES: Final = 10
#: Attribute in which Hypothesis keeps the settings of a test.
OWN_SETTINGS: Final = "_hypothesis_internal_use_settings"
#: Health check that is switched off: on a shared machine the speed of generation says nothing about a test.
SLOW: Final = (HealthCheck.too_slow,)
settings.register_profile("all", deadline=None, suppress_health_check=SLOW)
settings.register_profile("quick", max_examples=QUICK_EXAMPLES, deadline=None, suppress_health_check=SLOW)
if settings.get_current_profile_name() == "default":
    settings.load_profile("all")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound the examples of each test in the profile `quick`. A test's own settings precede those of a profile."""
    if settings.get_current_profile_name() != "quick":
        return
    for item in items:
        test = getattr(item, "obj", None)
        own = getattr(test, OWN_SETTINGS, None)
        if own is not None and own.max_examples > QUICK_EXAMPLES:
            setattr(test, OWN_SETTINGS, settings(own, max_examples=QUICK_EXAMPLES))
