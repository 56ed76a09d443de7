"""Records: hidden fields are not shown, uncompared fields do not matter for equality."""

from typing import ClassVar

from sluice.router.record import Record


class SampleRecord(Record, frozen=True):
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line"})

    user: str
    password: str
    line: int = 0


def test_hidden_fields_are_not_shown():
    assert repr(SampleRecord("anne", "secret", 3)) == "SampleRecord(user='anne', line=3)"


def test_uncompared_fields_make_no_difference():
    one, other = SampleRecord("anne", "secret", 3), SampleRecord("anne", "secret", 4)
    assert one == other
    assert hash(one) == hash(other)
    assert one != SampleRecord("anne", "other", 3)


def test_record_of_other_class_differs():
    class Other(SampleRecord, frozen=True):
        pass

    assert Other("anne", "secret") != SampleRecord("anne", "secret")
