"""Each parser, with well-formed and damaged input."""

import pytest

from tests.fuzz import samples
from tests.fuzz.harness import fuzz
from tests.unit.engine import parsers

TARGETS = {
    "codec": (samples.any_value, parsers.codec),
    "performatives": (samples.performative, parsers.performatives),
    "message": (samples.message, parsers.message),
    "sasl": (samples.sasl, parsers.sasl),
    "config": (samples.config, parsers.config),
    "address": (samples.address, parsers.address),
}


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_parser(name, fuzz_seconds):
    generate, run = TARGETS[name]
    fuzz(name, generate, run, fuzz_seconds)
