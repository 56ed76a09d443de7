"""What only tests need of compiled code. Not part of an installed router."""
