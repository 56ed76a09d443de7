"""Facts of the router as workers receive them, for tests."""

from sluice.router.control.setup import RouterFacts


def facts(identity: str = "QDR", mode: str = "standalone", *, test_hooks: bool = False) -> RouterFacts:
    """Return the router facts that a test's workers receive."""
    return RouterFacts(
        id=identity,
        mode=mode,
        product="sluice",
        version="0",
        allow_unsettled_multicast=False,
        test_hooks=test_hooks,
        buffered_megabytes=1024,
        stuck_scan_seconds=30,
        stuck_age_seconds=10,
        scrub_seconds=5 if test_hooks else 30,
        streams_kept=2 if test_hooks else 128,
        awaits_routers=False,
    )
