"""Address text: reduction, classes, keys and generated addresses (routing-semantics.md 3.1, 3.2, 4.3;
inter-router.md 3.2)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.addressing.address import classify, generate_temporary, key, normalise


# inter-router.md 3.1.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("foo", "foo"),
        ("/foo", "foo"),
        ("//host/foo", "foo"),
        ("//host:5672/foo/bar", "foo/bar"),
        ("//foo", "//foo"),
        ("amqp:/foo", "foo"),
        ("amqp://host:5672/foo", "foo"),
        ("amqp://host", "amqp://host"),
        ("x:/foo", "foo"),
        ("a/b:/foo", "foo"),
        ("amqp:foo", "amqp:foo"),
        ("a:b:/c", "c"),
        ("foo/", "foo"),
        ("foo.", "foo"),
        ("foo//", "foo/"),
        ("foo./", "foo."),
        ("/", ""),
        ("", ""),
        (".foo", ".foo"),
        ("a.b/c", "a.b/c"),
        ("amqp:/_topo/0/QDR/temp.x", "_topo/0/QDR/temp.x"),
        ("F" * 5000, "F" * 5000),
    ],
)
def test_normalise_reduces_address_text(text, expected):
    assert normalise(text) == expected


@given(st.text(alphabet="ab:/._", max_size=20))
def test_normalise_keeps_a_suffix_of_text(text):
    result = normalise(text)
    assert result in text
    assert text.endswith((result, result + "/", result + "."))


@pytest.mark.parametrize(
    ("text", "interior", "edge"),
    [
        ("foo", "M0foo", "M0foo"),
        ("_local/zz", "Lzz", "Lzz"),
        ("_local/a/b", "La/b", "La/b"),
        ("_topo/0/QDR/zz", "Lzz", "Lzz"),
        ("_topo/all/QDR/zz", "Lzz", "Lzz"),
        ("_topo/0/all/qdrouter", "Tqdrouter", "Tqdrouter"),
        ("_topo/all/all/x", "Tx", "Tx"),
        ("_topo/0/OTHER/x/y", "ROTHER", "L_edge"),
        ("_topo/0/OTHER", "ROTHER", "L_edge"),
        ("_topo/all/X", "RX", "L_edge"),
        ("_topo/0/QDRX/x", "RQDRX", "L_edge"),
        ("_topo/1/QDR/x", "A1", "L_edge"),
        ("_topo/1", "A1", "L_edge"),
        ("_edge/QDR/zz", "Lzz", "Lzz"),
        ("_edge/E/zz", "HE", "L_edge"),
        ("_edge/E", "HE", "L_edge"),
        ("$management", "M0$management", "M0$management"),
        ("_$temp.abc", "M0_$temp.abc", "M0_$temp.abc"),
        ("_x", "M0_x", "M0_x"),
        ("_localx", "M0_localx", "M0_localx"),
        ("x/_local/y", "M0x/_local/y", "M0x/_local/y"),
        ("", "M0", "M0"),
    ],
)
def test_address_has_class_and_key(text, interior, edge):
    assert key(*classify(text, "QDR", "interior")) == interior
    assert key(*classify(text, "QDR", "standalone")) == interior
    assert key(*classify(text, "QDR", "edge")) == edge


def test_phase_appears_in_mobile_keys_only():
    assert key("M", "a", 3) == "M3a"
    assert key("M", "a", "F") == "MFa"
    assert key("L", "a", 3) == "La"


# brokers-and-edge.md ED-15, ED-16.
@pytest.mark.parametrize(
    ("mode", "target", "pattern"),
    [
        ("standalone", False, r"amqp:/_topo/0/QDR/(temp\.[a-zA-Z0-9+_]{15})"),
        ("interior", False, r"amqp:/_topo/0/QDR/(temp\.[a-zA-Z0-9+_]{15})"),
        ("edge", False, r"amqp:/_edge/QDR/(temp\.[a-zA-Z0-9+_]{15})"),
        ("edge", True, r"amqp:/(_\$temp\.[a-zA-Z0-9+_]{15})"),
        ("interior", True, r"amqp:/(_\$temp\.[a-zA-Z0-9+_]{15})"),
    ],
)
def test_generated_address_matches_pattern(mode, target, pattern):
    text = generate_temporary("QDR", mode, target)
    match = re.fullmatch(pattern, text)
    assert match
    assert classify(normalise(text), "QDR", mode) == ("M" if target else "L", match.group(1))
    assert generate_temporary("QDR", mode, target) != text


def test_generated_addresses_use_whole_alphabet():
    letters = "".join(generate_temporary("QDR", "edge", True).rpartition(".")[2] for _ in range(400))
    assert len(set(letters)) == 64
