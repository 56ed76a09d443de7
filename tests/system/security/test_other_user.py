"""Option `sluice run --user`: the router runs as that user, or does not start."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.other_user import program_for, program_out_of_reach
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.http import get
from tests.system.router import ROOT, RouterProcess, listener

USER = "nobody"
AS_USER = ("--user", USER)


def test_router_as_another_user_checks_passwords_and_answers_pages(
    start: Start, request: pytest.FixtureRequest
) -> None:
    """Password checks and pages need programs and modules that are loaded after the change of user."""
    program = program_for(USER)
    folder = Path(tempfile.mkdtemp())  # pytest makes its own folders inaccessible to other users
    request.addfinalizer(lambda: shutil.rmtree(folder))
    folder.chmod(0o755)
    users = folder / "users"
    command = [str(ROOT / ".venv" / "bin" / "sluice"), "passwd", str(users), "alice"]
    subprocess.run(command, input="secret\n", text=True, capture_output=True, timeout=60, check=True)
    os.chown(users, pwd.getpwnam(USER).pw_uid, -1)
    sections = [
        ("saslUsers", {"name": "people", "file": users}),
        listener(saslUsers="people", saslMechanisms="PLAIN"),
        listener("web", http=True),
    ]
    router = start(sections, options=AS_USER, program=program)
    peer = AmqpPeer(router.port)
    assert peer.sasl("PLAIN", b"\0alice\0secret").code == 0
    peer.drop()
    assert get(router.ports["web"], "/metrics").status == 200
    assert get(router.ports["web"], "/metrics", **{"Accept-Charset": "us-ascii"}).status == 200


def test_router_with_an_interpreter_out_of_reach_is_refused_with_its_path(tmp_path: Path) -> None:
    router = RouterProcess(tmp_path, [listener()], options=AS_USER, program=program_out_of_reach(USER))
    router.spawn()
    line = router.wait_log(
        r"\(critical\) The router cannot start: user nobody, group - cannot run the router: (.*)", 30.0
    )[1]
    assert re.match(r"the user may not (enter|run|read) /\S", line)
    assert router.wait_exit() == 1
    assert "Operational" not in router.log
