"""Compiled lists and patterns of addresses, compared with a naive check of each item."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.policy.names import USER, NameList, NamePatterns, compile_names, item_fault
from tests.unit.router.policy.naive import listed, matched

WHO = "anonymous"


# -- properties ---------------------------------------------------------------------------------------------------

# Few letters, so that items and addresses often match.
WORDS = st.text("ab*#", max_size=3)
SEPARATED = st.lists(WORDS, max_size=4).map(".".join) | st.lists(WORDS, max_size=4).map("/".join)
USERS = st.sampled_from(["", "a", "b", "ab", "a.b", "*", "#", "a*", "a/", ".a", "ä"])
ITEMS = st.one_of(
    SEPARATED,
    st.tuples(SEPARATED, st.sampled_from(["", "."]), st.sampled_from(["", "."]), SEPARATED).map(
        lambda parts: f"{parts[0]}{parts[1]}{USER}{parts[2]}{parts[3]}"
    ),
    SEPARATED.map(lambda text: f"{USER}.{text}"),
    SEPARATED.map(lambda text: f"{text}.{USER}"),
    st.just(USER),
)


@st.composite
def questions(draw):
    """Return items, a user, and an address that is often similar to one of the items."""
    items, user = draw(st.lists(ITEMS, max_size=6)), draw(USERS)
    near = st.sampled_from(items).map(lambda item: item.replace(USER, user)) if items else st.just("")
    address = draw(SEPARATED | near | st.tuples(near, SEPARATED).map("".join) | st.tuples(SEPARATED, near).map("".join))
    return items, user, address


@given(questions())
def test_list_allows_union_of_its_items(question):
    items, user, address = question
    assert NameList(items).permits(address, user) == listed(items, address, user)


@given(questions())
def test_patterns_allow_union_of_their_items(question):
    items, user, address = question
    assert NamePatterns(items).permits(address, user) == matched(items, address, user)


@given(st.lists(st.text(max_size=20), max_size=5), st.text(max_size=20), st.text(max_size=8))
def test_random_items_addresses_and_users_agree(items, address, user):
    assert NameList(items).permits(address, user) == listed(items, address, user)
    assert NamePatterns(items).permits(address, user) == matched(items, address, user)


# -- examples of the specification --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "allowed", "refused"),
    [
        ("abs", ["abs"], ["/abs", "amqp:/abs", "ab", "abss", ""]),
        ("pre*", ["pre", "prefix"], ["pr", "/pre"]),
        ("x-${user}", ["x-anonymous"], ["x-", "x-anonymous2", "x-${user}"]),
        ("a-${user}-b", ["a-anonymous-b"], ["a--b", "a-anonymous"]),
        ("w${user}*", ["wanonymous", "wanonymousfoo"], ["w", "wanon"]),
        ("r.*", ["r.a", "r.*", "r.a.b"], ["r"]),
        ("m*d", ["m*d"], ["mad", "m"]),
        ("*end", ["*end"], ["end", "the end"]),
        ("q.#", ["q.#"], ["q.a"]),
        ("n**", ["n*", "n*x"], ["n", "nx"]),
        ("*", ["a", "a/b", "*"], [""]),
    ],
)
def test_list_item_allows_documented_addresses(item, allowed, refused):
    rules = NameList([item])
    assert [address for address in allowed + refused if rules.permits(address, WHO)] == allowed


@pytest.mark.parametrize(
    ("item", "allowed", "refused"),
    [
        ("a.*.b", ["a.q.b", "a/q/b", "/a.q.b", "a.q.b/"], ["a.b", "a.q.q.b"]),
        ("x.#", ["x", "x.y.z"], ["xy", "y.x"]),
        ("${user}.#", ["anonymous", "anonymous.foo.bar"], ["anonymousfoo", "foo.anonymous"]),
        ("#.${user}", ["x.anonymous", "foo.bar.anonymous"], ["anonymous", "xanonymous"]),
        ("*.${user}", ["x.anonymous"], ["anonymous", "x.y.anonymous"]),
        ("${user}", ["anonymous", "/anonymous"], ["anonymous.x"]),
        ("${user}suffix", [], ["anonymoussuffix", "anonymous"]),
        ("pre*", ["pre*"], ["prefix"]),
        ("abs", ["abs", "/abs"], ["absx"]),
        ("#", ["a", "a.b/c"], [""]),
    ],
)
def test_pattern_item_allows_documented_addresses(item, allowed, refused):
    rules = NamePatterns([item])
    assert [address for address in allowed + refused if rules.permits(address, WHO)] == allowed


def test_empty_rules_allow_no_address():
    assert not NameList([]).permits("a", WHO)
    assert not NamePatterns([]).permits("a", WHO)


def test_anonymous_gets_no_user_area():
    rules = NameList([f"{USER}*", f"x-{USER}"])
    assert [address for address in ("a", "x-", "x-a") if rules.permits(address, None)] == ["x-"]
    assert not NamePatterns([f"{USER}.#", f"#.{USER}", USER]).permits("a.b", None)


@pytest.mark.parametrize("user", ["*", "#", "a*"])
def test_user_name_is_no_wildcard(user):
    assert not NameList([USER, f"x-{USER}"]).permits("x-abc", user)
    assert not NamePatterns([USER, f"{USER}.x", f"x.{USER}"]).permits("b.x", user)
    assert NamePatterns([f"{USER}.x"]).permits(f"{user}.x", user)


def test_user_name_may_contain_separators():
    assert NamePatterns(["${user}.in"]).permits("org.unit.in", "org.unit")
    assert not NamePatterns(["${user}.in"]).permits("org.in", "org.unit")


def test_compiler_chooses_by_kind():
    assert compile_names(["a.*"], False).permits("a.b.c", "")
    assert not compile_names(["a.*"], True).permits("a.b.c", "")


def test_large_lists_and_long_addresses_are_matched():
    items = [f"tenant-{number}/queue" for number in range(100)] + [f"area-{number}-{USER}/*" for number in range(100)]
    rules = NameList(items)
    assert rules.permits("tenant-57/queue", WHO)
    assert rules.permits("area-99-anonymous/x", WHO)
    assert not rules.permits("a" * 100_000, WHO)
    patterns = NamePatterns([f"#.a{number}.#.b" for number in range(100)])
    assert patterns.permits("/".join(["a7"] * 2000) + "/b", WHO)
    assert not patterns.permits("/".join(["a7"] * 2000), WHO)


@pytest.mark.parametrize(
    ("item", "pattern", "fault"),
    [
        ("a", False, None),
        ("a${user}b", False, None),
        ("${user}${user}", False, "contains multiple user subtitution tokens"),
        ("a.${user}.b", True, "may contain match pattern '${user}' as a prefix or a suffix only."),
        ("${user}suffix", True, None),
    ],
)
def test_invalid_item_is_reported(item, pattern, fault):
    assert item_fault(item, pattern) == fault
