"""Identity of the router's processes by names of users and groups."""

from __future__ import annotations

import grp
import os
import pwd
import resource
from types import SimpleNamespace

import pytest

from sluice.supervisor.children.privileges import (
    NO_DUMP,
    Identity,
    PrivilegeError,
    find_identity,
    forbid_core_dumps,
)

USER = pwd.getpwuid(os.geteuid())
GROUP = grp.getgrgid(os.getegid()).gr_name
OTHER_GROUP = next(each for each in grp.getgrall() if each.gr_gid != USER.pw_gid)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process look like one of root."""
    monkeypatch.setattr("sluice.supervisor.children.privileges.os.geteuid", lambda: 0)


def test_router_without_names_keeps_its_identity() -> None:
    assert find_identity(None, None) is None


@pytest.mark.usefixtures("as_root")
def test_user_has_own_group_and_supplementary_groups() -> None:
    found = find_identity(USER.pw_name, None)
    assert found == Identity(USER.pw_uid, USER.pw_gid, tuple(os.getgrouplist(USER.pw_name, USER.pw_gid)))
    assert found.numbers == (USER.pw_uid, USER.pw_gid)


@pytest.mark.usefixtures("as_root")
def test_named_group_replaces_all_groups_of_user() -> None:
    gid = OTHER_GROUP.gr_gid
    assert find_identity(USER.pw_name, OTHER_GROUP.gr_name) == Identity(USER.pw_uid, gid, (gid,))
    group_only = find_identity(None, OTHER_GROUP.gr_name)
    assert group_only is not None
    assert group_only.numbers == (-1, gid), "the user is unchanged"


@pytest.mark.parametrize(("user", "group"), [("no-such-user", None), (None, "no-such-group"), ("a\0b", None)])
def test_unknown_name_is_an_error(user: str | None, group: str | None) -> None:
    with pytest.raises(PrivilegeError, match="Can't look up (user|group) "):
        find_identity(user, group)


def test_foreign_identity_is_refused_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.supervisor.children.privileges.os.geteuid", lambda: 12345)
    with pytest.raises(PrivilegeError, match=f"Can't become user {USER.pw_name}, group -: only root can"):
        find_identity(USER.pw_name, None)


def test_process_may_be_told_its_present_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = SimpleNamespace(pw_uid=12345, pw_gid=os.getegid())
    monkeypatch.setattr("sluice.supervisor.children.privileges.os.geteuid", lambda: entry.pw_uid)
    monkeypatch.setattr("sluice.supervisor.children.privileges.pwd.getpwnam", lambda name: entry)
    monkeypatch.setattr("sluice.supervisor.children.privileges.os.getgrouplist", lambda name, gid: [gid])
    assert find_identity("me", GROUP) == Identity(entry.pw_uid, entry.pw_gid, (entry.pw_gid,))


def test_core_dumps_are_forbidden_for_present_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int, tuple[int, int]]] = []

    def limit(process: int, kind: int, limits: tuple[int, int]) -> None:
        calls.append((process, kind, limits))
        if process == 1:
            raise ProcessLookupError

    monkeypatch.setattr("sluice.supervisor.children.privileges.resource.prlimit", limit)
    forbid_core_dumps([1, 2])
    assert calls == [(process, resource.RLIMIT_CORE, NO_DUMP) for process in (1, 2)]
