"""User identity of the router's processes, and core dumps. See also router/process.py."""

import grp
import os
import pwd
import resource
from collections.abc import Iterable
from typing import Final, NamedTuple

# Smaller than any dump. The kernel treats 1, but not 0, as a request not to start a program that would collect it.
NO_DUMP: Final = (1, 1)


class PrivilegeError(Exception):
    """Error when the router cannot change to the configured user; the text is the reason."""


class Identity(NamedTuple):
    """User and groups of the processes once the ports are open."""

    user: int | None
    group: int | None
    groups: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        """Return user and group as chown expects them; -1: unchanged."""
        return -1 if self.user is None else self.user, -1 if self.group is None else self.group

    def drop(self) -> None:
        """Change to this identity permanently. Raises OSError."""
        if self.group is not None:
            if os.geteuid() == 0:
                os.setgroups(self.groups)
            os.setresgid(self.group, self.group, self.group)
        if self.user is not None:
            os.setresuid(self.user, self.user, self.user)


def find_identity(user: str | None, group: str | None) -> Identity | None:
    """Return the identity for these names, or None if both are None. Raises PrivilegeError.

    Without a group, the groups of the user are used.
    """
    if user is None and group is None:
        return None
    uid, gid, groups = None, None, []
    if user is not None:
        try:
            entry = pwd.getpwnam(user)
        except (KeyError, ValueError) as error:
            raise PrivilegeError(f"Can't look up user {user}") from error
        uid, gid = entry.pw_uid, entry.pw_gid
        groups = os.getgrouplist(user, gid)
    if group is not None:
        try:
            gid = grp.getgrnam(group).gr_gid
        except (KeyError, ValueError) as error:
            raise PrivilegeError(f"Can't look up group {group}") from error
        groups = [gid]
    if os.geteuid() != 0 and (uid, gid) != (os.geteuid(), os.getegid()):
        raise PrivilegeError(f"Can't become user {user or '-'}, group {group or '-'}: only root can")
    return Identity(uid, gid, tuple(groups))


def forbid_core_dumps(processes: Iterable[int]) -> None:
    """Prevent core dumps of these processes and of all that they fork. Raises OSError."""
    for process in processes:
        try:
            resource.prlimit(process, resource.RLIMIT_CORE, NO_DUMP)
        except ProcessLookupError:
            continue  # the process has ended
