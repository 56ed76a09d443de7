"""Inputs that once made the engine or a parser fail."""

import pytest

from tests.unit.engine.vectors import names, replay


@pytest.mark.parametrize("name", names())
def test_once_failed(name):
    replay(name)
