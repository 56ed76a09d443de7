"""Hooks and fixtures for unit tests."""

from tests.in_process import (
    bound_descriptors,
    descriptor_bound,
    fail_on_process_start,
    pytest_collection_modifyitems,
    start_recorder,
)

__all__ = [
    "bound_descriptors",
    "descriptor_bound",
    "fail_on_process_start",
    "pytest_collection_modifyitems",
    "start_recorder",
]
