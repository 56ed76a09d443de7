"""Sluice, a many-core AMQP 1.0 message router.

In the repository, the packages are symbolic links to the folders of the top level (docs/decisions/0070-namespace.md).
"""
