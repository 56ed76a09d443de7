"""Access of tests to compiled code. Not part of an installed router."""
