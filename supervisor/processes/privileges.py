"""What the processes of a router may do: the user that they become, and core dumps. See also router/process.py."""

import grp
import os
import pwd
import resource
from collections.abc import Iterable
from typing import Final, NamedTuple

# Less than any dump has; the kernel takes 1, and not 0, as an order to start no program that would collect it.
NO_DUMP: Final = (1, 1)


class PrivilegeError(Exception):
    """The router cannot become the user that it was told to; the text is the reason."""


class Identity(NamedTuple):
    """Who the processes are once the ports are open."""

    user: int | None
    group: int | None
    groups: tuple[int, ...]

    @property
    def numbers(self) -> tuple[int, int]:
        """User and group, as chown takes them: -1 stays as it is."""
        return -1 if self.user is None else self.user, -1 if self.group is None else self.group

    def drop(self) -> None:
        """Become that, for good. Raises OSError."""
        if self.group is not None:
            if os.geteuid() == 0:
                os.setgroups(self.groups)
            os.setresgid(self.group, self.group, self.group)
        if self.user is not None:
            os.setresuid(self.user, self.user, self.user)


def find_identity(user: str | None, group: str | None) -> Identity | None:
    """The user and group with these names; without a group, those of the user. None: nobody else.

    Raises PrivilegeError.
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
    """None of these processes, and none that they fork, leaves its memory in a file. Raises OSError."""
    for process in processes:
        try:
            resource.prlimit(process, resource.RLIMIT_CORE, NO_DUMP)
        except ProcessLookupError:
            continue  # it has ended
