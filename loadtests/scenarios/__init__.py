"""Scenarios for locust: which users there are, in what proportion, with which addresses and rates."""
