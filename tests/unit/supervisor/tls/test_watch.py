"""Watch for changed files of sslProfiles: they are read again once their states are stable."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sluice.router.control.ops import CredentialsOp
from sluice.supervisor.runtime.threads import Threads
from sluice.supervisor.tls.profiles import Materials
from sluice.supervisor.tls.watch import CredentialWatch
from tests.peer.pki import Issued, Pki, pki
from tests.unit.supervisor.tls.test_profiles import LISTENER, TlsProfilesOnTable, text


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    found = pki(tmp_path_factory.getbasetemp())
    found.issue("renewed", "/CN=renewed")
    return found


class WatchedProfile:
    """Profile whose files the test replaces, and its watch, whose checks the test makes."""

    def __init__(self, folder: Path, authority: Pki) -> None:
        self.files = Issued(folder / "certificate", folder / "key")
        self.authority = authority
        self.put(authority.server)
        self.profiles = TlsProfilesOnTable(text(authority, LISTENER, issued=self.files))
        self.loop = asyncio.get_running_loop()
        self.watch = CredentialWatch(self.loop, self.profiles.tls, self.profiles.log)
        self.threads = Threads(self.loop, "credentials", 4)
        self.reads: list[list[str]] = []  # names of the profiles in each read

    async def load(self) -> None:
        await self.profiles.load()
        self.profiles.ops()
        read = self.profiles.tls.read

        async def counted(names: list[str]) -> Materials:
            self.reads.append(names)
            return await read(names)

        self.profiles.tls.read = cast("Any", counted)  # type: ignore[method-assign]
        for _ in range(2):  # the first checks read the files once more
            await self.watch._look(self.threads)
        self.profiles.ops()
        self.reads.clear()

    def put(self, issued: Issued) -> None:
        """Replace the files as tools do, which leave the old ones to those who have opened them."""
        for source, target in zip(issued, self.files, strict=True):
            new = target.with_suffix(".new")
            new.write_bytes(source.read_bytes())
            os.replace(new, target)

    async def look(self) -> list[CredentialsOp]:
        """Make a check, and return the changes that workers get."""
        await self.watch._look(self.threads)
        return [op for op in self.profiles.ops() if isinstance(op, CredentialsOp)]


def run(folder: Path, authority: Pki, scenario: Callable[[WatchedProfile], Awaitable[None]]) -> None:
    async def body() -> None:
        watched = WatchedProfile(folder, authority)
        await watched.load()
        await scenario(watched)
        watched.watch.stop()

    asyncio.run(body())


def test_unchanged_files_are_not_read_again(tmp_path: Path, authority: Pki) -> None:
    async def scenario(watched: WatchedProfile) -> None:
        for _ in range(3):
            assert await watched.look() == []
        assert watched.reads == []

    run(tmp_path, authority, scenario)


def test_changed_files_are_read_when_their_states_are_stable(tmp_path: Path, authority: Pki) -> None:
    """A tool may replace a certificate and its key one after the other."""

    async def scenario(watched: WatchedProfile) -> None:
        renewed = Issued(*(path.with_name(f"renewed{path.suffix}") for path in authority.server))
        watched.put(renewed)
        assert await watched.look() == []
        watched.put(renewed)
        assert await watched.look() == [], "they have changed once more"
        assert watched.reads == []
        (op,) = await watched.look()
        assert op.credentials is not None
        assert op.credentials.certificates == renewed.certificate.read_text("ascii")
        assert await watched.look() == []
        assert watched.reads == [["p"]]

    run(tmp_path, authority, scenario)


def test_touched_files_with_same_contents_change_nothing(tmp_path: Path, authority: Pki) -> None:
    async def scenario(watched: WatchedProfile) -> None:
        watched.put(authority.server)
        assert [await watched.look() for _ in range(3)] == [[], [], []]
        assert watched.reads == [["p"]]

    run(tmp_path, authority, scenario)


def test_missing_file_keeps_credentials_in_force(tmp_path: Path, authority: Pki) -> None:
    async def scenario(watched: WatchedProfile) -> None:
        watched.files.key.unlink()
        assert [await watched.look() for _ in range(3)] == [[], [], []]
        assert any("sslProfile 'p'" in line for line in watched.profiles.lines())
        watched.put(authority.server)
        for _ in range(3):
            await watched.look()
        assert len(watched.reads) == 2, "once for each change"

    run(tmp_path, authority, scenario)


def test_profile_of_changed_section_is_read_again(tmp_path: Path, authority: Pki) -> None:
    """Its files may have changed between their reading for the configuration and the first check."""

    async def scenario(watched: WatchedProfile) -> None:
        await watched.profiles.change(text(authority, LISTENER, issued=watched.files, protocols="TLSv1.3"))
        watched.reads.clear()
        for _ in range(3):
            await watched.look()
        assert watched.reads == [["p"]]

    run(tmp_path, authority, scenario)
