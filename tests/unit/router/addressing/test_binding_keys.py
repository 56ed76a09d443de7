"""Binding keys, compared with the documented table and a naive matcher (routing-semantics.md X-3)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.addressing.binding_keys import KeyMatcher


def matcher(method, *keys):
    result = KeyMatcher(method)
    for number, key in enumerate(keys):
        result.bind(key, number)
    return result


@pytest.mark.parametrize(
    ("subject", "hops"),
    [
        ("a.b", {"q1", "q2"}),
        ("a", {"q2"}),
        ("a.b.c", {"q2"}),
        ("x.b", {"q1"}),
        ("a..b", {"q2"}),
        (".a.b", {"q1", "q2"}),
        ("zzz", set()),
        ("A.b", {"q1"}),
        ("a/b", set()),
    ],
)
def test_amqp_keys_match_documented_subjects(subject, hops):
    keys = matcher("amqp", "a.*", "a.#", "*.b")
    assert {("q1", "q2", "q1")[number] for number in keys.match(subject)} == hops


@pytest.mark.parametrize(
    ("subject", "hops"),
    [("a/b", [0, 1]), ("a", [1]), ("a/", [1]), ("/a/b", [0, 1]), ("b/a", []), ("a.b", []), ("a/b/c", [1])],
)
def test_mqtt_keys_match_documented_subjects(subject, hops):
    assert matcher("mqtt", "a/+", "a/#").match(subject) == hops


def test_missing_subject_matches_nothing_and_empty_subject_any_wildcard():
    keys = matcher("amqp", "#", None, "*")
    assert keys.match(None) == []
    assert keys.match("") == [0, 1]
    assert keys.match("x") == [0, 1, 2]


@pytest.mark.parametrize("key", ["a/#/b", "#/b", "", "/"])
def test_invalid_mqtt_key_is_refused(key):
    with pytest.raises(ValueError, match="^The binding key pattern is invalid$"):
        KeyMatcher("mqtt").bind(key, 1)


def test_unknown_method_is_refused():
    with pytest.raises(ValueError, match="Exchange matchMethod must be either 'amqp' or 'mqtt'"):
        KeyMatcher("regex")


def test_equal_keys_match_until_unbound():
    keys = matcher("amqp", "a.#.*", "a.*.#", "a.b")
    assert keys.match("a.b") == [0, 1, 2]
    keys.unbind(0)
    assert keys.match("a.b") == [1, 2]
    keys.unbind(1)
    keys.unbind(2)
    assert keys.match("a.b") == []
    assert keys._root.empty()
    with pytest.raises(KeyError):
        keys.unbind(2)


def test_work_is_bounded_for_hostile_subjects():
    assert matcher("amqp", "#.a.#.a.#.a.#.a.#.a.#.b").match(".".join("a" * 20000)) == []


@given(
    st.lists(st.lists(st.sampled_from("ab*#"), min_size=1, max_size=6), max_size=6),
    st.lists(st.sampled_from("abc"), max_size=6),
)
def test_keys_agree_with_regular_expressions(keys, subject):
    found = matcher("amqp", *(".".join(key) for key in keys)).match(".".join(subject))
    parts = {"*": r"[^.]+\.", "#": r"([^.]+\.)*"}
    text = "".join(token + "." for token in subject)
    expected = [
        number
        for number, key in enumerate(keys)
        if re.fullmatch("".join(parts.get(token, token + r"\.") for token in key), text)
    ]
    assert found == expected
