"""Processes of the router: the zygote, the workers, and the channels to them."""
