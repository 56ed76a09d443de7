"""Fixtures for tests of commands."""

import pytest

from tests.unit.router.cli.commands import CommandRunner


@pytest.fixture
def shell(tmp_path):
    return CommandRunner(tmp_path)
