"""Configurations written as files: they start the same router, without passwords."""

from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.config.diff import diff
from sluice.router.config.entities import Configuration
from sluice.router.config.inventory import Inventory
from sluice.router.config.load import load_text, read
from sluice.router.config.render import RenderError, render
from sluice.router.config.request import create
from sluice.router.config.schema import SCHEMA
from tests.unit.router.config.sections import section

ROOT = Path(__file__).parents[4]
FILES = [path for path in sorted((ROOT / "conf").glob("**/*.conf")) if path.parent.name != "systemd"]
FILES += sorted((Path(__file__).parent / "dispatch").iterdir())


def again(configuration: Configuration, *, json: bool = False) -> Configuration:
    """Return the configuration in the written file."""
    return load_text("again.json" if json else "again.conf", render(configuration, json=json), files=False)


@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_written_file_has_same_configuration(path: Path, json: bool) -> None:
    before = load_text(str(path), read(str(path)), files=False)
    after = again(before, json=json)
    changed = {name for change in diff(before, after).changes for name in change.attributes}
    assert changed <= {"policyDir", "saslPassword"}
    assert all(change.kind == "update" for change in diff(before, after).changes)
    assert diff(after, again(before, json=json)).changes == ()
    assert render(again(after, json=json), json=json) == render(after, json=json)


METADATA = '{ \\ " # \t \u2028 \U0001f600 é  '
STRANGE = [
    ["router", {"id": "A", "metadata": METADATA}],
    ["listener", {"host": "localhost", "openProperties": {"#a": [1, {"b": None}], "c": "}"}}],
    ["address", {"pattern": "a/#/ *\\", "distribution": "closest"}],
]


@pytest.mark.parametrize("json", [False, True])
def test_strange_values_survive(json: bool) -> None:
    before = load_text("x.json", json_codec.dispatch_text(STRANGE))
    after = again(before, json=json)
    assert after.router.metadata == METADATA
    assert after.listeners[0].open_properties == {"#a": [1, {"b": None}], "c": "}"}
    assert after.addresses[0].pattern == "a/#/ *\\"
    assert diff(before, after).changes == ()


def test_password_is_written_only_as_reference() -> None:
    text = "".join(
        section("connector", f"name: c{number}", "host: h", f"saslPassword: {written}")
        for number, written in enumerate(["secret1", "pass:secret2", "literal:secret3", "file:/f", "env:NAME"])
    )
    shown = render(load_text("x.conf", text))
    assert "secret" not in shown
    assert shown.count("# saslPassword: not shown; write a reference") == 3
    assert "saslPassword: file:/f\n" in shown
    assert "saslPassword: env:NAME\n" in shown


def test_generated_id_is_a_comment() -> None:
    configuration = load_text("x.conf", section("router", "mode: interior"))
    shown = render(configuration)
    assert f"# id: {configuration.router.id} was made by the router at its start\n" in shown
    assert again(configuration).router.id != configuration.router.id


def test_entity_of_management_is_marked() -> None:
    inventory = Inventory(load_text("x.conf", section("address", "prefix: a")))
    entity, _ = create(SCHEMA.types["router.config.address"], "b", {"prefix": "b"}, inventory)
    inventory.change([], [entity])
    shown = render(inventory.configuration)
    assert "# made by management\naddress {\n    name: b\n    prefix: b\n" in shown
    assert shown.count("# made by management") == 1


def test_vhosts_of_policy_directory_are_written_into_file(tmp_path: Path) -> None:
    group = {"users": "u, CN=x", "remoteHosts": "*"}
    (tmp_path / "a.json").write_text(json_codec.dispatch_text([["vhost", {"hostname": "a", "groups": {"g": group}}]]))
    before = load_text("x.conf", section("policy", f"policyDir: {tmp_path}", "enableVhostPolicy: yes"))
    shown = render(before)
    assert "# policyDir: the vhosts of" in shown
    assert [vhost.hostname for vhost in again(before).vhosts] == ["a"]
    assert again(before).vhosts[0].groups[0].users == ("u", "CN=x")


def test_exchange_that_lost_its_place_keeps_its_name() -> None:
    text = section("exchange", "address: a") + section("exchange", "address: b")
    text += section("binding", "exchangeName: exchange/1", "nextHopAddress: c")
    inventory = Inventory(load_text("x.conf", text))
    inventory.change([inventory.configuration.exchanges[0]], [])
    (binding,) = again(inventory.configuration).bindings
    assert binding.exchange_name == "exchange/1"


def test_empty_value_needs_json_syntax() -> None:
    configuration = load_text("x.json", '[["policy", {"defaultVhost": ""}]]')
    with pytest.raises(RenderError, match="the empty value of 'defaultVhost'"):
        render(configuration)
    assert again(configuration, json=True).policy.default_vhost == ""
