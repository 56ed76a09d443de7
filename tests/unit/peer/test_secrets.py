"""Scan for secrets in received octets."""

from collections.abc import Iterator

import pytest

from tests.peer import secrets

SECRET = b"0123456789"


@pytest.fixture(autouse=True)
def stored_secret() -> Iterator[None]:
    secrets.keep(SECRET)
    yield
    secrets.forget(SECRET)


@pytest.mark.parametrize("piece", [1, 3, 9, 100])
def test_secret_is_found_once_in_any_reads(piece: int) -> None:
    scan = secrets.Scan(lambda: "here")
    octets = b"x" * 25 + SECRET + b"y" * 25
    for at in range(0, len(octets), piece):
        scan.take(octets[at : at + piece])
    assert secrets.take_leaks(SECRET) == ["here"]
    assert secrets.take_leaks(SECRET) == []


def test_partial_secret_is_not_reported() -> None:
    scan = secrets.Scan(lambda: "here")
    for octets in (SECRET[:-1], b"x", SECRET[1:]):
        scan.take(octets)
    assert secrets.take_leaks(SECRET) == []
