"""Users files."""

import pytest

from sluice.router.sasl import users
from sluice.router.sasl.users import Users, UsersError, parse
from sluice.router.sasl.verifiers import Verifier, VerifierError, make

STRONG, WEAK = "SCRAM-SHA-512", "SCRAM-SHA-1"


def verifier(mechanism=STRONG, password="p", iterations=4096):
    return make(mechanism, password, iterations)


@pytest.mark.parametrize("name", ["guest", "a b", "jürgen", "#no-comment", "!key", "a%20b", "user@realm", "x,y=z"])
def test_users_file_is_read_unchanged(name):
    made = Users({}).with_user(name, [verifier(), verifier(WEAK)])
    again = parse(made.text())
    assert again.users == made.users
    assert again.key is not None
    assert parse(again.text()).key == again.key


def test_blank_lines_and_comments_are_ignored():
    made = parse("\n# remark\n   \nguest " + verifier().text() + "  \n")
    assert list(made.users) == ["guest"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("guest", "no verifier"),
        ("guest password", "unknown mechanism 'password'"),
        ("guest SCRAM-SHA-1$x:AAAA$AAAA:AAAA", "iterations is not a number"),
        ("guest SCRAM-SHA-1$99:AAAA$AAAA:AAAA", "iterations must be"),
        ("guest SCRAM-SHA-1$4096:$AAAA:AAAA", "salt must have"),
        ("guest SCRAM-SHA-1$4096:AAAA$AAAA:AAAA", "keys must have 20"),
        ("guest SCRAM-SHA-1$4096:AAAA$!:AAAA", "not base64"),
        ("guest SCRAM-SHA-1$4096", "not base64|salt|keys"),
        ("%ff SCRAM-SHA-1$4096:AAAA$AAAA:AAAA", "not UTF-8"),
        ("%00 SCRAM-SHA-1$4096:AAAA$AAAA:AAAA", "cannot be used"),
        ("u" * 1025 + " SCRAM-SHA-1$4096:AAAA$AAAA:AAAA", "more than 1024 octets"),
        ("!key ???", "not base64"),
    ],
)
def test_invalid_line_is_refused(line, text):
    with pytest.raises(UsersError, match=f"line 2: .*({text})"):
        parse("# users\n" + line)


def test_duplicate_user_is_refused():
    line = f"guest {verifier().text()}\n"
    with pytest.raises(UsersError, match="line 2: the user occurs twice"):
        parse(line + line)


def test_offered_mechanisms_are_common_to_all_users():
    """Clients choose the strongest offered mechanism, so a user without a verifier for it could not log in."""
    both = Users({}).with_user("a", [verifier(), verifier(WEAK)])
    assert both.mechanisms == [STRONG, WEAK]
    assert both.with_user("b", [verifier(WEAK)]).mechanisms == [WEAK]
    assert Users({}).mechanisms == []


def test_unknown_users_look_like_most_users():
    found = Users({"a": {STRONG: verifier(iterations=5000)}, "b": {STRONG: verifier(iterations=5000)}})
    fake, known = found.find("nobody", STRONG)
    assert (fake.iterations, known) == (5000, False)
    plain, known = found.find("nobody", None)
    assert (plain.mechanism, plain.iterations, known) == (STRONG, 5000, False)
    assert not fake.matches("p")


def test_user_is_deleted_by_name():
    made = Users({}).with_user("a", [verifier()])
    assert made.without_user("a").users == {}
    with pytest.raises(KeyError):
        made.without_user("b")


def test_secrets_are_hidden_in_repr():
    each = verifier()
    assert each.stored_key.hex() not in repr(each)
    assert repr(each.stored_key)[2:-1] not in repr(each)
    assert repr(Users({"a": {STRONG: each}})) == "Users(1)"
    with pytest.raises(VerifierError) as error:
        Verifier.parse(each.text().replace(":", "!"))
    assert "!" not in str(error.value)


def test_users_file_errors_are_reported(tmp_path):
    path = tmp_path / "users"
    path.write_text(Users({}).with_user("a", [verifier()]).text())
    assert list(users.read(str(path)).users) == ["a"]
    path.write_bytes(b"\xff")
    with pytest.raises(UsersError, match="not UTF-8"):
        users.read(str(path))
