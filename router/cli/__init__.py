"""The commands: `sluice`, and `qdrouterd` under the name and with the options of Dispatch."""

from router.cli.streams import open_missing

open_missing()  # before any module opens a descriptor
