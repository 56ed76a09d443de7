"""Records: hidden fields are not shown, uncompared fields do not matter for equality."""

from typing import ClassVar

from router.record import Record


class Login(Record, frozen=True):
    HIDDEN: ClassVar[frozenset[str]] = frozenset({"password"})
    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"line"})

    user: str
    password: str
    line: int = 0


def test_hidden_fields_are_not_shown():
    assert repr(Login("anne", "secret", 3)) == "Login(user='anne', line=3)"


def test_uncompared_fields_make_no_difference():
    one, other = Login("anne", "secret", 3), Login("anne", "secret", 4)
    assert one == other
    assert hash(one) == hash(other)
    assert one != Login("anne", "other", 3)


def test_a_record_of_another_class_differs():
    class Other(Login, frozen=True):
        pass

    assert Other("anne", "secret") != Login("anne", "secret")
