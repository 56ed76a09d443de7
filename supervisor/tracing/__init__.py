"""Sampling of deliveries, and the way of their spans to requesters and to the export."""
