"""Cache of revocation lists: kept lists, renewal and log lines, without a network."""

import asyncio
import time

import pytest

from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.tls import list_cache
from sluice.supervisor.tls.list_cache import ListCache
from sluice.supervisor.tls.lists import ListError, RevocationList
from tests.unit.supervisor.auth.waiting import soon

NOW = time.time()
URL = "http://ca.example/list"


def profile(urls=URL, **attributes):
    given = {"caCertFile": "/ca", **({"crlUrl": urls} if urls else {}), **attributes}
    lines = "".join(f"{name}: {value}\n" for name, value in given.items())
    return load_text("x.conf", f"sslProfile {{\nname: p\n{lines}}}\n").ssl_profiles[0]


def revocation_list(pem, begins=NOW - 60, ends=NOW + 86400):
    return RevocationList(pem, begins, ends)


class ListCacheWithServer:
    def __init__(self):
        self.answers = {}
        self.requests = []
        self.renewed: list[str] = []
        self.log = ProcessLog(LogSettings({"DEFAULT": ModuleSettings(output="/dev/null")}))
        self.cache = ListCache(asyncio.get_running_loop(), self.log, self.renewed.append, self.fetch)

    async def fetch(self, url, trusted_file, threads):
        self.requests.append((url, trusted_file))
        answer = self.answers.get(url, ListError("HTTP status 404"))
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look(self, *configs, times):
        """Call `look` of the cache until `times` lists have been requested."""
        self.cache.look({each.name: each for each in configs})
        await soon(lambda: len(self.requests) >= times)
        await asyncio.sleep(0)

    def lines(self):
        return [entry.text for entry in self.log.recent()]


def run(scenario):
    asyncio.run(_run(scenario))


async def _run(scenario):
    setup = ListCacheWithServer()
    await scenario(setup)
    setup.cache.stop()


def test_profile_without_urls_requests_no_lists():
    async def scenario(setup):
        config = profile("")
        await setup.look(config, times=0)
        assert (setup.cache.lists(config), setup.cache.problem("p")) == (None, None)

    run(scenario)


def test_lists_of_profile_are_the_available_ones():
    async def scenario(setup):
        config = profile(f"{URL} {URL}2")
        assert setup.cache.lists(config) == ""
        setup.answers = {URL: revocation_list("one"), URL + "2": ListError("HTTP status 404")}
        await setup.look(config, times=2)
        assert setup.cache.lists(config) == "one"
        assert setup.cache.problem("p") == f"revocation list {URL}2: HTTP status 404"
        assert setup.renewed == ["p"]
        (failed,) = [line for line in setup.lines() if "404" in line]
        refused = "cannot be renewed: HTTP status 404; connections are refused"
        assert failed == f"sslProfile 'p': revocation list {URL}2 {refused}"

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ListError("HTTP status 500"), "HTTP status 500"),
        (revocation_list("old", NOW - 61), "the fetched list is older than the previous list"),
        (revocation_list("ended", NOW, NOW - 1), "the fetched list has expired"),
        (KeyError("x"), "KeyError: 'x'"),
    ],
)
def test_list_without_renewal_is_kept(monkeypatch, answer, reason):
    monkeypatch.setattr(list_cache, "LEAST_PAUSE", 0.0)

    async def scenario(setup):
        config = profile(crlRefreshSeconds=10)
        setup.answers[URL] = revocation_list("one", ends=time.time() + 0.2)
        await setup.look(config, times=1)
        setup.answers[URL] = answer
        while len(setup.requests) < 2:
            await setup.look(config, times=1)
            await asyncio.sleep(0.01)
        assert setup.cache.lists(config) == "one"
        assert setup.cache.problem("p") == f"revocation list {URL}: {reason}"
        assert any(line.endswith(f"{reason}; the previous list is used until it expires") for line in setup.lines())
        assert setup.renewed == ["p"]

    run(scenario)


def test_list_is_fetched_again_when_due():
    async def scenario(setup):
        config = profile()
        setup.answers[URL] = revocation_list("one")
        for _ in range(3):
            await setup.look(config, times=1)
        assert setup.requests == [(URL, "/ca")]
        await setup.look(profile(caCertFile="/other"), times=2)
        assert setup.requests[1:] == [(URL, "/other")], "other authorities: the list has to be checked again"
        setup.cache.look({})
        assert setup.cache.lists(config) == ""

    run(scenario)


@pytest.mark.parametrize(
    ("urls", "trusted", "fault"),
    [
        ("ftp://ca.example/list", "/ca", "is not a URL with http:// or https:// and a host"),
        ("http://user:secret@ca.example/", "/ca", "the URL has a user or a password"),
        ("http:///list", "/ca", "is not a URL with http:// or https:// and a host"),
        (URL, None, "caCertFile must be set to the authorities"),
        (" ".join([URL] * 17), "/ca", "17 URLs; at most 16 are allowed"),
    ],
)
def test_unusable_list_url_is_refused(urls, trusted, fault):
    lines = f"crlUrl: {urls}\n" + (f"caCertFile: {trusted}\n" if trusted else "")
    with pytest.raises(ConfigError, match=f"x.conf:3: .*crlUrl: .*{fault}"):
        load_text("x.conf", f"sslProfile {{\nname: p\n{lines}}}\n")
