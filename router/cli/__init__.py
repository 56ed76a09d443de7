"""The commands: `sluice`, and `qdrouterd` under the name and with the options of Dispatch."""
