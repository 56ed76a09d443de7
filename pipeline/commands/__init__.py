"""The verbs of `sluice pipeline`: each module is one, found by its name.

A module has HELP (one line), `add_arguments(parser)` and `run(options) -> int`, the exit code. It imports what the
extra brings when it runs, never before, so that it can say what is missing.
"""
