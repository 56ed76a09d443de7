"""Changes of the configuration while the router runs: by management, by SIGHUP and by `sluice reload`.

`configuration` is what the rest of the supervisor uses; `prepare` finds out what a change amounts to, without touching
anything, and `listeners` opens and closes sockets.
"""
