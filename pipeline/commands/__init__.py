"""Verbs of `sluice pipeline`: one module for each, found by its name.

A module has HELP (one line), `add_arguments(parser)` and `run(options) -> int`, which returns the exit code. A module
imports packages of the extra inside `run` only, so that it can report missing ones.
"""
