"""JSON with lines: values, comment lines, spare commas, limits, and the line of each error."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.config.jsontext import MAX_DEPTH, MAX_NUMBER, JsonReader, JsonSyntaxError

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**64) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def read(text, *, spare_commas=False):
    return JsonReader(text, spare_commas=spare_commas).document()


def refusal(text, *, spare_commas=False):
    """Return line and message of the error for a text."""
    with pytest.raises(JsonSyntaxError) as caught:
        read(text, spare_commas=spare_commas)
    return caught.value.line, caught.value.message


@given(VALUES, st.sampled_from([None, 1]))
def test_values_are_those_of_standard_library(value, indent):
    text = json.dumps(value, indent=indent)
    assert read(text).plain() == value == json.loads(text)


def test_members_of_objects_have_lines():
    node = read('\n{"a": 1,\n "b":\n  {"c": [1,\n 2]}}')
    assert node.line == 2
    assert node.lines() == {("a",): 2, ("b",): 4, ("b", "c"): 4}
    assert [item.line for item in node.value["b"].value["c"].value] == [4, 5]


def test_last_of_equal_keys_counts():
    assert read('{"a": 1, "a": 2}').plain() == {"a": 2}


def test_lines_that_begin_with_hash_are_comments():
    text = '# head\n{\n   # {\n"a": "#b" # no comment\n}'
    assert refusal(text) == (4, "expected ',' or '}', found '# no comment'")
    assert read(text.replace(" # no comment", "") + "\n# end").plain() == {"a": "#b"}


@pytest.mark.parametrize(("text", "value"), [("[1,]", [1]), ('{"a": 1,\n}', {"a": 1})])
def test_spare_comma_is_an_option(text, value):
    assert read(text, spare_commas=True).plain() == value
    assert refusal(text) == (1, f"spare ',' before '{text[-1]}'")


@pytest.mark.parametrize("text", ["[,]", "[1,,]", "{,}"])
def test_comma_without_value_is_refused(text):
    refusal(text, spare_commas=True)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "expected a JSON value, found the end of the file"),
        ("1\n2", 2, "text after the end of the JSON value"),
        ("[1\n2]", 2, "expected ',' or ']', found '2]'"),
        ("{\n'a': 1}", 2, "Expecting property name enclosed in double quotes or '}', found ''a': 1}'"),
        ('{"a"\n1}', 2, "expected ':' after key 'a', found '1}'"),
        ("[\n01]", 2, "expected ',' or ']', found '1]'"),
        ("NaN", 1, "expected a JSON value, found 'NaN'"),
        ("[1e999]", 1, "number out of range: 1e999"),
        ('"\\ud800"', 1, "bad JSON string: no low surrogate in string"),
        ('"\ud800"', 1, "bad JSON string: str is not valid UTF-8: surrogates not allowed"),
        ('"\\x"', 1, "bad JSON string: invalid escaped sequence in string"),
        ('{\n"a": "b}', 2, "bad JSON string: no closing quote"),
        ('["\n"]', 1, "bad JSON string: unexpected control character in string"),
    ],
)
def test_error_has_line_and_reason(text, line, message):
    assert refusal(text) == (line, message)


def test_nesting_is_bounded():
    assert read("[" * MAX_DEPTH + "]" * MAX_DEPTH).line == 1
    assert refusal("[\n" * (MAX_DEPTH + 1) + "1") == (MAX_DEPTH + 2, f"more than {MAX_DEPTH} levels of nested values")
    refusal("[" * 100_000)


def test_length_of_numbers_is_bounded():
    assert read("1" * MAX_NUMBER).value == int("1" * MAX_NUMBER)
    assert refusal("1" * (MAX_NUMBER + 1)) == (1, f"number longer than {MAX_NUMBER} characters")


def test_object_within_text_is_read_from_position():
    text = 'a: {"b":\n1} rest'
    node, end = JsonReader(text, spare_commas=False).members(text.index("{") + 1)
    assert (node.plain(), node.line, text[end:]) == ({"b": 1}, 1, " rest")
