"""URLs of services that the router queries over HTTP."""

import pytest

from sluice.router.config.web_urls import web_url_fault


@pytest.mark.parametrize("url", ["http://h", "https://h:1/p?q", "http://[::1]:4318/v1/traces"])
def test_url_with_host_has_no_fault(url):
    assert web_url_fault(url) is None


@pytest.mark.parametrize(
    "url", ["", "h:1", "ftp://h", "http:///p", "http://h:x/", "http://h:0/", "http://h:99999/", "http://["]
)
def test_text_without_url_is_refused_by_its_words(url):
    assert web_url_fault(url) == f"'{url}' is not a URL with http:// or https:// and a host"


def test_scheme_is_limited():
    assert web_url_fault("http://h", ("https",)) == "'http://h' is not a URL with https:// and a host"


@pytest.mark.parametrize("url", ["https://user:secret@h/", "https://secret@h", "http://[secret@"])
def test_password_is_refused_and_not_repeated(url):
    fault = web_url_fault(url)
    assert fault is not None
    assert "user or a password" in fault
    assert "secret" not in fault
