"""An interior router of Dispatch 1.19 for tests, written from the description of its protocol alone.

It shares no code with the router under test. What 1.19 sends it sends octet for octet; where 1.19 errs it errs too.
Tests drive it: they start it, connect it, put messages in, look at what arrives and settle it, and read its tables.
`router.Router19` is the router, `world.World` the thread that its sockets live in.
"""
