"""Captures: messages and their timing in a file (docs/user/capture.md)."""
