"""Counters of failed logins, bounded whatever clients send."""

from sluice.supervisor.auth.failures import MAX_METHOD_COUNTERS, MOST_HOSTS, OTHER, FailedLogins, LoginMethod


def test_recently_failed_hosts_have_counters() -> None:
    logins = FailedLogins()
    for number in range(MOST_HOSTS):
        logins.add("l", "PLAIN", f"h{number}")
    logins.add("l", "PLAIN", "h0")
    logins.add("l", "PLAIN", "new")
    assert (len(logins.by_host), logins.by_host["h0"], logins.by_other_hosts) == (MOST_HOSTS, 2, 1)
    assert "h1" not in logins.by_host
    assert logins.by_method == {LoginMethod("l", "PLAIN"): MOST_HOSTS + 2}


def test_excess_listeners_share_one_counter() -> None:
    logins = FailedLogins()
    for number in range(MAX_METHOD_COUNTERS + 2):
        logins.add(f"l{number}", None, "h")
    assert (len(logins.by_method), logins.by_method[LoginMethod(OTHER, OTHER)]) == (MAX_METHOD_COUNTERS + 1, 2)
    assert logins.by_host == {"h": MAX_METHOD_COUNTERS + 2}
