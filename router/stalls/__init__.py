"""Stalls: links with work to do and no progress, with their reasons."""
