"""Both syntaxes of configuration files: all rules of the grammar, and the line in each error.

management.md 2.1 to 2.5.
"""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice.router.config.errors import ConfigError, Problems
from sluice.router.config.grammar import fold, parse
from sluice.router.config.load import load_text


def sections(text, path="x.conf"):
    """Return (name, line, {attribute: (value, line)}) of each section. Any error fails the test."""
    problems = Problems(path)
    found = parse(text, problems)
    assert [str(error) for error in problems.errors] == []
    return [(s.name, s.line, {name: (i.value, i.line) for name, i in s.attributes.items()}) for s in found]


def errors(text, path="x.conf"):
    """Return (line, message) of each error."""
    problems = Problems(path)
    parse(text, problems)
    return [(error.line, error.message) for error in problems.errors]


def value(text, name="metadata"):
    """Return the value of the single attribute `name: text` in a section."""
    return sections(f"router {{\n    {name}: {text}\n}}\n")[0][2][fold(name)][0]


def test_section_has_attributes_with_lines():
    text = "# head\n\nlistener {\n  host: a\n\n  port : 5672\n}\nrouter{\n}\n"
    assert sections(text) == [
        ("listener", 3, {"host": ("a", 4), "port": ("5672", 6)}),
        ("router", 8, {}),
    ]


@pytest.mark.parametrize("header", ["router {", "router{", "router \t {", "  router {  ", "router { # note"])
def test_section_header_allows_blanks(header):
    assert sections(f"{header}\n}}\n") == [("router", 1, {})]


def test_carriage_returns_and_byte_order_mark_are_ignored():
    text = "\ufeffrouter {\r\n  id: A\r\n}\r\n"
    assert sections(text) == [("router", 1, {"id": ("A", 2)})]


@pytest.mark.parametrize("text", ["", "\n\n", "# only\n  # comments\n"])
def test_empty_text_has_no_sections(text):
    assert sections(text) == []


def test_repeated_section_is_kept_and_last_attribute_wins():
    text = "address {\nprefix: a\nprefix: b\n}\naddress {\n}\n"
    assert sections(text) == [("address", 1, {"prefix": ("b", 3)}), ("address", 5, {})]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a b  c", "a b  c"),
        ("a#b", "a"),
        ("a # b", "a"),
        ("127.0.0.1,", "127.0.0.1,"),
        ("a:b", "a:b"),
        (r"a\tb\n", "a\tb\n"),
        (r"c:\\x", "c:\\x"),
        (r"\u0041", "A"),
        ("$x", "$x"),
        ("a } b", "a } b"),
        ("é", "é"),
    ],
)
def test_value_is_unquoted(written, meant):
    assert value(written) == meant


@pytest.mark.parametrize("name", ["pattern", "bindingKey", "binding-key", "hostname"])
def test_hash_in_wildcard_attribute_is_kept(name):
    assert value("a/#/b  # note", name) == "a/#/b"
    assert value("#", name) == "#"


def test_hash_in_prefix_is_a_comment():
    assert value("p/#x", "prefix") == "p/"


@pytest.mark.parametrize("written", ['"a"', r"\q", 'a"b', "a\\", "a\tb", r"\ud800", "\\"])
def test_invalid_value_is_reported_with_line(written):
    assert [line for line, _ in errors(f"router {{\n  metadata: {written}\n}}\n")] == [2]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("listener { host: x", "'{' must be the last thing in its line"),
        ("listener { host: x }", "'{' must be the last thing in its line"),
        ("router.config.address {", "a section name consists of letters"),
        ("{", "'{' must be in the same line as the name"),
        ("listener", "expected 'section {', 'attribute: value' or '}'"),
    ],
)
def test_invalid_line_outside_sections_is_reported(line, advice):
    found = errors(f"\n{line}\n}}\n")
    assert [number for number, _ in found][:1] == [2]
    assert advice in found[0][1]
    assert line in found[0][1]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("host:", "the attribute has no value"),
        ("host: # nothing", "the attribute has no value"),
        ('openProperties: {"a": "b"}', "'{' must be the last thing in its line"),
        ("host x }", "'}' must be alone in its line"),
        ("},", "'}' must be alone in its line"),
        ("a.b: c", "expected 'section {'"),
    ],
)
def test_invalid_line_in_section_is_reported(line, advice):
    found = errors(f"listener {{\n{line}\n}}\n")
    assert [number for number, _ in found] == [2]
    assert advice in found[0][1]


def test_unbalanced_braces_are_reported():
    assert errors("router {\nid: A\n") == [(1, "section 'router' is not closed: no '}' follows")]
    assert errors("router {\n}\n}\n") == [(3, "'}' without an open section")]
    assert errors("id: A\n") == [(1, "attribute 'id' outside a section")]
    expected = "section 'router' of line 1 is not closed before section 'listener'"
    assert errors("router {\nid: A\nlistener {\nport: 1\n}\n") == [(3, expected)]


def test_mistake_gives_single_error():
    assert len(errors("listener\n{\n  host: x\n  port: 1\n}\n")) == 2  # the two wrong lines
    assert len(errors("listener { # x\nhost: x\n{\nport: 1\n}\n")) == 1


def test_errors_are_reported_together():
    text = "router {\n  id:\n  mode\n}\nnonsense\nlistener {\n  host: \\q\n}\n"
    assert [line for line, _ in errors(text)] == [2, 3, 5, 7]


JSON_MAP = """listener {
    openProperties: {
        # a whole-line comment
        "a": "x#y",
        "b": {"c": [1, true, null, 2.5]},
        "d": {
            "e": "f"
        },
    }
    port: 1
}
"""
OLD_MAP = """listener {
    open-properties: {
        a: x   # a comment

        b: {
            c.d: 1, 2
        },
        $default: {
        }
    }
    port: 1
}
"""


def test_nested_json_is_read():
    expected = {"a": "x#y", "b": {"c": [1, True, None, 2.5]}, "d": {"e": "f"}}
    attributes = sections(JSON_MAP)[0][2]
    assert attributes == {"openProperties": (expected, 2), "port": ("1", 10)}


def test_nested_json_members_may_span_lines():
    # Members on one line that all end in `},`, as 1.19 required.
    text = 'listener {\nopenProperties: {\n"a": {"x": "1"},\n"b": {"y": "2"},\n}\n}\n'
    assert sections(text)[0][2]["openProperties"][0] == {"a": {"x": "1"}, "b": {"y": "2"}}
    # Multi-line members separated by `},`, which 1.19 miscounted.
    text = 'listener {\nopenProperties: {\n"a": {\n"x": "1"\n},\n"b": {\n"y": "2"\n}\n}\nport: 1\n}\n'
    attributes = sections(text)[0][2]
    assert attributes["openProperties"][0] == {"a": {"x": "1"}, "b": {"y": "2"}}
    assert attributes["port"] == ("1", 10)


def test_nested_unquoted_map_is_read():
    attributes = sections(OLD_MAP)[0][2]
    expected = {"a": "x", "b": {"c.d": "1, 2"}, "$default": {}}
    assert attributes == {"openProperties": (expected, 2), "port": ("1", 11)}


def test_nested_unquoted_patterns_are_read():
    text = "vhost {\ngroups: {\n$default: {\nsourcePattern: a/#, b.#  # note\nusers: a # note\n}\n}\n}\n"
    expected = {"$default": {"sourcePattern": "a/#, b.#", "users": "a"}}
    assert sections(text)[0][2]["groups"][0] == expected


def test_nested_empty_map_is_read():
    assert sections("listener {\nopenProperties: {\n}\n}\n")[0][2]["openProperties"] == ({}, 2)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        (['"a": "b" # note', "}"], 3, "expected ',' or '}'"),
        (['"a": "b"', '"c": "d"', "}"], 4, "expected ',' or '}'"),
        (['"a" "b"', "}"], 3, "expected ':' after key 'a'"),
        (['"a": b', "}"], 3, "expected a JSON value, found 'b'"),
        (['"a": "b"', "} x"], 4, "text after the '}' of the map opened in line 2"),
        (["a: b", "c", "}"], 4, "expected 'section {'"),
        (['null: "x",', "}"], 3, "Expecting property name enclosed in double quotes: null is a value"),
        (["a: b", "9: {", "}", "}"], 4, "Expecting property name enclosed in double quotes: 9 is a value"),
        (['"a": 1,', "9: 2", "}"], 4, "Expecting property name enclosed in double quotes or '}', found '9: 2'"),
    ],
)
def test_nested_error_is_reported_with_line(lines, line, message):
    text = "\n".join(["listener {", "openProperties: {", *lines, "}", ""])
    found = errors(text)
    assert [number for number, _ in found] == [line]
    assert message in found[0][1]


def test_nested_error_does_not_hide_next_section():
    text = 'listener {\nopenProperties: {\n"a" "b"\n}\n}\nrouter {\nid:\n}\n'
    assert [line for line, _ in errors(text)] == [3, 7]


def test_nested_map_not_closed_is_reported():
    assert errors("listener {\nopenProperties: {\na: b\nrouter {\n}\n")[0] == (
        2,
        "map 'openProperties' is not closed: no '}' follows",
    )


@pytest.mark.parametrize(
    ("written", "folded"),
    [
        ("sasl-mechanisms", "saslMechanisms"),
        ("sasl_mechanisms", "saslMechanisms"),
        ("link-route", "linkRoute"),
        ("a.bC dE", "aBcDe"),
        ("maxFrameSize", "maxFrameSize"),
        ("Router", "Router"),
        ("ssl-profile", "sslProfile"),
    ],
)
def test_names_with_hyphens_are_folded(written, folded):
    assert fold(written) == folded
    text = json.dumps([[written, {written: "x"}]])
    assert sections(text, "x.json") == [(folded, 1, {folded: ("x", 1)})]


def test_json_file_has_sections_with_lines():
    text = '# head\n[\n  ["router", {"id": "A",\n    "workers": 2}],\n  # note\n  ["listener", {}]\n]\n'
    assert sections(text, "x.json") == [
        ("router", 3, {"id": ("A", 3), "workers": (2, 4)}),
        ("listener", 6, {}),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('\n{"router": {}}', 2),
        ('[\n["router"]\n]', 2),
        ('[\n["router", []]\n]', 2),
        ('[\n["router", {}]\n["listener", {}]\n]', 3),
        ('[["router", {}],\n]', 1),
        ("[1e999]", 1),
        ("[NaN]", 1),
        ("[" * 100, 1),
        ('["\\ud800"]', 1),
        ("[]\nx", 2),
        ("# only a comment\n", 1),
        ("[" + "1" * 100 + "]", 1),
        ('["open', 1),
    ],
)
def test_json_error_is_reported_with_line(text, line):
    assert [number for number, _ in errors(text, "x.json")] == [line]


def test_error_text_names_path_and_line():
    with pytest.raises(ConfigError) as caught:
        load_text("dir/x.conf", "router {\n  mode: y\n  id:\n}\n")
    assert [str(error).split(" ")[0] for error in caught.value.errors] == ["dir/x.conf:2:", "dir/x.conf:3:"]
    assert str(caught.value) == str(caught.value.errors[0])


PIECES = st.sampled_from(
    [
        "router {", "listener {", "address {", "exchange {", "binding {", "log {", "}", "},", "openProperties: {",
        '"a": {', '"a": "b",', '"a": [1, {', "id: x", "port: 0", "prefix: a", "pattern: #", "mode: 9", "workers: -1",
        "enable: +", "module: DEFAULT", "host: \\", "timestampFormat: %", "#", "a: {", "$b: {", "", "\x00", "\ud7ff",
        "address: x", "exchangeName: exchange/0", "nextHopAddress: y", "nextHopPhase: 12", "failoverUrls: ,", "name: n",
        "vhost {", "policy {", "dummy {", "console {", "groups: {", "sourcePattern: a # b", "maxConnections: 1",
    ]
)  # fmt: skip
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
ATTRIBUTES = st.sampled_from(
    ["id", "mode", "workers", "host", "port", "openProperties", "prefix", "enable", "module", "name", "priority"]
)
SECTIONS = st.sampled_from(
    ["router", "listener", "address", "log", "exchange", "binding", "connector", "vhost", "policy", "dummy", "x"]
)


def only_config_errors(text, path):
    """Load `text`. Any exception other than a ConfigError with lines inside the file fails the test."""
    try:
        load_text(path, text)
    except ConfigError as error:
        for each in error.errors:
            assert each.line is not None
            assert 1 <= each.line <= text.count("\n") + text.count("\r") + 1


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet=string.punctuation + "ab \n", max_size=200))
def test_garbage_raises_only_config_errors(text):
    only_config_errors(text, "x.conf")
    only_config_errors(text, "x.json")


@settings(max_examples=500, deadline=None)
@given(st.lists(PIECES, max_size=20))
def test_shuffled_lines_raise_only_config_errors(lines):
    only_config_errors("\n".join(lines), "x.conf")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(SECTIONS, st.dictionaries(ATTRIBUTES, DOCUMENTS, max_size=4)), max_size=4) | DOCUMENTS)
def test_random_json_raises_only_config_errors(document):
    only_config_errors(json.dumps(document, allow_nan=False), "x.json")
