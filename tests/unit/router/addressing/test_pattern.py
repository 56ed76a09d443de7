"""Address patterns, compared with the documented cases and a naive matcher (routing-semantics.md 14)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice.router.addressing.pattern import (
    DuplicatePatternError,
    PatternError,
    PatternTree,
    address_tokens,
    canonical,
    from_prefix,
)


def tree(*patterns):
    result: PatternTree[str] = PatternTree()
    for pattern in patterns:
        result.insert(pattern, pattern)
    return result


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("a.b.c.d", "a.b.c.d"),
        ("b.c.d", "#.b.c.d"),
        ("f.a.b.c.d", "#.b.c.d"),
        ("a.c.d", "a.*.d"),
        ("a/c/c/d", "a/*/#.d"),
        ("a/x/z/z/d", "a/*/#.d"),
        ("a/x/d", "a.x.d"),
        ("a.x.e", None),
        ("m.b.c.d", "*/b/c/d"),
    ],
)
def test_documented_address_matches_documented_pattern(address, expected):
    settings = tree("a.b.c.d", "a.x.d", "a/*/#.d", "#.b.c.d", "a.*.d", "*/b/c/d")
    assert settings.match(address) == expected


# brokers-and-edge.md LR-3.
@pytest.mark.parametrize(
    ("address", "matches"), [("P", True), ("P/x", True), ("P.x", True), ("P/x/y", True), ("Px", False), ("x/P", False)]
)
def test_prefix_matches_whole_tokens(address, matches):
    settings: PatternTree[object] = PatternTree()
    settings.insert(from_prefix("P"), 1)
    assert (settings.match(address) is not None) == matches


def test_longer_pattern_beats_shorter():
    settings = tree("deep/#", "deep/er/#")
    assert settings.match("deep.er.x") == "deep/er/#"
    assert settings.match("deep.x") == "deep/#"


# brokers-and-edge.md LR-3.
def test_separators_are_equivalent():
    assert tree("p/*/x").match("p.a/x")
    assert tree("/lead/trail/").match("lead.trail")
    assert tree("lead/trail").match("/./lead/trail")
    assert tree("p/*/x").match("p//x")
    assert not tree("p/x").match("p//x")
    assert not tree("p/*").match("p/")


def test_wildcards_are_whole_tokens():
    assert tree("a*").match("a*")
    assert not tree("a*").match("ab")
    assert not tree("a#").match("a")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("#.*", "*/#"),
        ("#.#", "#"),
        ("#.*.#.*.a", "*/*/#/a"),
        ("a.#.*", "a/*/#"),
        ("*.#", "*/#"),
        ("#.a.#", "#/a/#"),
    ],
)
def test_canonical_form_orders_wildcards(pattern, expected):
    assert "/".join(canonical(pattern)) == expected


def test_duplicate_pattern_is_refused():
    settings = tree("a/#")
    with pytest.raises(DuplicatePatternError) as caught:
        settings.insert("a.#", "2")
    assert str(caught.value) == "Already exists: Duplicate pattern 'a/#' not added to parse tree"
    settings.insert("#.*", "1")
    with pytest.raises(DuplicatePatternError):
        settings.insert("*.#", "2")
    assert settings.match("a") == "a/#"
    assert len(settings) == 2


def test_pattern_without_tokens_is_refused():
    with pytest.raises(PatternError, match="Prefix invalid - no tokens"):
        from_prefix("./")
    with pytest.raises(PatternError, match="Pattern invalid - no tokens"):
        tree().insert("./", "")


def test_pattern_with_value_none_is_kept():
    settings: PatternTree[object] = PatternTree()
    settings.insert("a", None)
    with pytest.raises(DuplicatePatternError):
        settings.insert("a", None)
    assert settings.remove("a") is None


def test_work_is_bounded_for_hostile_addresses():
    settings = tree("#.a.#.a.#.a.#.a.#.a.#.a.#.b")
    assert settings.match(".".join("a" * 20000)) is None


TOKENS = st.sampled_from(["a", "b", "c", ""])
PATTERN_TOKENS = st.sampled_from(["a", "b", "c", "*", "#"])
PATTERNS = st.lists(st.lists(PATTERN_TOKENS, min_size=1, max_size=6).map("/".join), max_size=6)
ADDRESSES = st.lists(TOKENS, max_size=7).map(".".join)


def naive(pattern, tokens):
    """Return the ranks of the choices in a pattern's best match, or None. A smaller result is better."""
    if not pattern:
        return None if tokens else ()
    head, rest = pattern[0], pattern[1:]
    if head == "#":
        ways = [
            (2,) * max(1, skipped) + way
            for skipped in range(len(tokens) + 1)
            if (way := naive(rest, tokens[skipped:])) is not None
        ]
        return min(ways, default=None)
    if not tokens or head not in ("*", tokens[0]):
        return None
    way = naive(rest, tokens[1:])
    return None if way is None else (1 if head == "*" else 0, *way)


@given(PATTERNS, ADDRESSES)
@example(["#/a/a", "#/a/#"], "a.a.a")
def test_match_agrees_with_naive_matcher(patterns, address):
    settings: PatternTree[object] = PatternTree()
    kept = {}
    for pattern in patterns:
        try:
            settings.insert(pattern, pattern)
            kept[pattern] = canonical(pattern)
        except DuplicatePatternError:
            assert canonical(pattern) in kept.values()
    tokens = address_tokens(address)
    matching = {pattern for pattern, form in kept.items() if naive(form, tokens) is not None}
    found = settings.match(address)
    assert (found is None) == (not matching)
    if found is None:
        return
    assert found in matching
    # Among patterns without `#` the first choice from the left decides, token by token.
    exact = {pattern: naive(kept[pattern], tokens) for pattern in matching if "#" not in kept[pattern]}
    if exact and len(exact) == len(matching):
        assert exact[found] == min(exact.values())
    # At the first token where two patterns differ, `#` never beats a literal or `*`, unless both have a `#` before it:
    # then the pattern in which that `#` skips fewer tokens wins.
    for other in matching:
        for mine, theirs in zip(kept[found], kept[other], strict=False):
            if mine != theirs:
                assert rank(mine) <= rank(theirs)
                break
            if mine == "#":
                break
        else:
            continue


def rank(token):
    return {"#": 2, "*": 1}.get(token, 0)


@given(PATTERNS, st.data())
def test_removal_undoes_insertion(patterns, data):
    settings: PatternTree[object] = PatternTree()
    kept = {}
    for pattern in patterns:
        form = "/".join(canonical(pattern))
        if form not in kept:
            settings.insert(pattern, pattern)
            kept[form] = pattern
    assert dict(settings.items()) == kept
    for form in data.draw(st.permutations(sorted(kept))):
        assert settings.get(form) == kept[form]
        assert settings.remove(form) == kept.pop(form)
        assert dict(settings.items()) == kept
        with pytest.raises(KeyError):
            settings.remove(form)
    assert settings._root.empty()
