"""`sluice config`: requests, files and exit codes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.router import json_codec
from sluice.router.cli import config
from tests.unit.router.cli.node import Answer, ReceivedRequest, ScriptedManagementNode

LINES = "# Configuration\n\nrouter {\n    id: A\n}\n"
JSON = '# Configuration\n[\n["router", {"id": "A"}],\n["address", {"prefix": "b"}]\n]\n'


def answer(request: ReceivedRequest) -> list[Answer]:
    if request.properties.get("differences"):
        return [(200, "OK", {"path": "x.conf", "changes": [{"kind": "create"}], "text": "+ address 'b'"})]
    return [(200, "OK", {"path": "x.conf", "text": JSON if request.properties["json"] else LINES})]


@pytest.fixture
def node() -> Iterator[ScriptedManagementNode]:
    made = ScriptedManagementNode(answer)
    yield made
    made.stop()


def test_show_prints_file(node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]) -> None:
    assert config.main(["show", "-b", node.url]) == 0
    assert config.main(["show", "--json", "-b", node.url]) == 0
    assert capsys.readouterr() == (LINES + JSON, "")
    assert node.requests[0].properties["operation"] == "GET-CONFIGURATION"


def test_save_keeps_replaced_file(
    node: ScriptedManagementNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conf"
    assert config.main(["save", str(file), "-b", node.url]) == 0
    assert file.read_text() == LINES
    file.write_text("old")
    file.chmod(0o640)
    assert config.main(["save", str(file), "-b", node.url]) == 1
    assert "exists: replace it with --force" in capsys.readouterr().err
    assert config.main(["save", str(file), "--force", "-b", node.url]) == 0
    assert (file.read_text(), file.stat().st_mode & 0o777) == (LINES, 0o640)
    assert (tmp_path / "a.conf.bak").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.conf", "a.conf.bak"]


def test_save_into_missing_directory_is_reported(
    node: ScriptedManagementNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config.main(["save", str(tmp_path / "none" / "a.conf"), "-b", node.url]) == 1
    assert "No such file or directory" in capsys.readouterr().err


def test_save_writes_json_syntax_for_its_suffix(node: ScriptedManagementNode, tmp_path: Path) -> None:
    assert config.main(["save", str(tmp_path / "a.json"), "-b", node.url]) == 0
    assert (tmp_path / "a.json").read_text() == JSON


def test_diff_with_file_of_router_has_exit_code_3(
    node: ScriptedManagementNode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert config.main(["diff", "-b", node.url]) == config.DIFFERENT
    assert capsys.readouterr().out == "+ address 'b'\n"
    assert config.main(["diff", "--json", "-b", node.url]) == config.DIFFERENT
    assert json_codec.decode(capsys.readouterr().out)["changes"] == [{"kind": "create"}]


def test_diff_with_file_here_ignores_passwords(
    node: ScriptedManagementNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conf"
    file.write_text("router {\nid: A\n}\naddress {\nprefix: b\n}\n")
    assert config.main(["diff", str(file), "-b", node.url]) == 0
    file.write_text("router {\nid: A\n}\nconnector {\nname: c\nsaslPassword: secret\n}\n")
    assert config.main(["diff", str(file), "-b", node.url]) == config.DIFFERENT
    out = capsys.readouterr().out
    assert "- connector 'c'" in out
    assert "+ address (prefix b)" in out
    assert "sasl" not in out
    file.write_text("nonsense")
    assert config.main(["diff", str(file), "-b", node.url]) == 1
    assert "a.conf:1: Invalid config file syntax" in capsys.readouterr().err
