"""Display of addresses."""

import pytest

from sluice.router.cli.stat.addresses import class_of, phase_of, text_of
from tests.unit.router.cli.stat.rows import ADDRESS, Stat


def test_addresses_table_is_sorted_and_formatted(stat: Stat) -> None:
    rows = [
        ADDRESS,
        {**ADDRESS, "name": "M1a", "priority": 7},
        {**ADDRESS, "name": "Cbroker", "distribution": "linkBalanced"},
        {**ADDRESS, "name": "Xodd"},
    ]
    assert stat({"router.address": rows}, "-a") == (
        "Router Addresses\n"
        "  class       addr    phs  distrib       pri  local  remote  in         out  thru  fallback\n"
        f"  {'=' * 91}\n"
        "  mobile      a       1    balanced      7    1      2       1,234,567  4    5     6\n"
        "  mobile      b       0    balanced      -    1      2       1,234,567  4    5     6\n"
        "  link-in     broker       linkBalanced  -    7      2       1,234,567  4    5     6\n"
        "  unknown: X  odd          balanced      -    1      2       1,234,567  4    5     6\n"
    )
    verbose = stat({"router.address": [ADDRESS]}, "-a", "-v", "--csv").splitlines()
    assert verbose[1:] == [
        '"class","addr","phs","distrib","pri","in-proc","local","remote","in","out","thru","fallback","to-proc",'
        '"from-proc"',
        '"mobile","b","0","balanced","-","0","1","2","1,234,567","4","5","6","1,000","2,000"',
    ]


# management.md 6.3.
@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("M1queue", ("mobile", "queue", "1")),
        ("M0", ("mobile", "", "0")),
        ("RQDR.B", ("router", "QDR.B", "")),
        ("Lqdhello", ("local", "qdhello", "")),
        ("Tqdrouter", ("topo", "qdrouter", "")),
        ("Eb.*", ("link-in", "b.*", "")),
        ("Fb.*", ("link-out", "b.*", "")),
        ("HE1", ("edge", "E1", "")),
        ("", ("", "", "")),
        (None, ("", "", "")),
    ],
)
def test_key_is_shown_as_class_address_and_phase(key: str | None, shown: tuple[str, str, str]) -> None:
    assert (class_of(key), text_of(key), phase_of(key)) == shown
