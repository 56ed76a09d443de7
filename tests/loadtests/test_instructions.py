"""Instruction counts of deliveries: rows run, no row costs more than the stored table, and growth is detected."""

from dataclasses import replace

import pytest

from loadtests import instructions
from loadtests.callgrind import read_costs
from loadtests.instruction_rows import ROWS

OUTPUT = """\
version: 1
events: Ir D1mr D1mw

ob=(1) /project/router/one.so
fn=(1) route
1 10 1 2
cob=(2) /project/router/two.so
cfn=(2) forward
calls=3 5
1 300 30 30
cob=(3) /usr/lib/libc.so.6
cfn=(3) memcpy
calls=1 5
1 7 1 0
cob=(4) /usr/lib/libpython3.so
cfn=(4) PyDict_New
calls=2 5
+2 5000 9 9

ob=(2)
fn=(2)
* 20 2 0

ob=(4)
fn=(4)
1 9999 99 99
"""


@pytest.mark.parametrize("name", ROWS)
def test_rows_can_be_played(name):
    with ROWS[name]() as play:
        for _ in range(2):
            play(10)


def test_router_code_and_libc_are_counted(tmp_path):
    """Counted are the router's own code, whatever its caller, and its calls into libc, as well as calls between shared
    objects."""
    output = tmp_path / "out"
    output.write_text(OUTPUT)
    costs = read_costs(output, "/project")
    assert (costs.instructions, costs.misses) == (10 + 7 + 20, 3 + 1 + 2)
    assert (costs.module_calls, costs.interpreter_calls) == (3, 2)


def test_output_of_other_format_is_refused(tmp_path):
    output = tmp_path / "out"
    output.write_text("nothing")
    with pytest.raises(ValueError, match="is no output of callgrind"):
        read_costs(output, "/project")


def test_grown_row_is_reported():
    stored = instructions.stored()
    one = stored["unsettled"]
    assert set(stored) == set(ROWS)
    assert not instructions.grown([replace(one, instructions=one.instructions * 1.02)], stored)
    (line,) = instructions.grown([replace(one, instructions=one.instructions * 1.04)], stored)
    assert line.startswith("unsettled: ")


@pytest.mark.long
@pytest.mark.timeout(1200)  # two minutes of an otherwise idle core
def test_rows_cost_no_more_than_stored_table(capsys):
    if instructions.toolchain() != instructions.stored_toolchain():
        pytest.skip(f"the table was counted with {instructions.stored_toolchain()}, here is {instructions.toolchain()}")
    assert instructions.main(["unsettled", "presettled", "two-workers", "link-route", "--check"]) == 0, (
        capsys.readouterr()
    )
