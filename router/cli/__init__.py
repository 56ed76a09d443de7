"""Commands: `sluice`, and `qdrouterd` with the name and the options of Dispatch."""

from sluice.router.cli.streams import open_missing

open_missing()  # before any module opens a descriptor
