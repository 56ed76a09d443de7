"""Protocol between interior routers: HELLO, link states, paths, mobile addresses (inter-router.md 4 to 10)."""
