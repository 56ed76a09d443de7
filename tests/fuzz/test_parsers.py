"""Parsers with well-formed and damaged input."""

import pytest

from tests.fuzz.harness import fuzz
from tests.fuzz.targets import PARSERS


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", PARSERS)
def test_parser_survives_damaged_input(name, fuzz_seconds):
    fuzz(name, PARSERS[name].generate, PARSERS[name].run, fuzz_seconds)
