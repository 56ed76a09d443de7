"""Scenarios for locust: kinds of users, their proportions, addresses and rates."""
