"""Completion of command lines in bash, zsh and fish: scripts for the shells, and names from a running router."""
