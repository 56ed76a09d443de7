"""Link routes: choice of the container for an attach, here or at another router, and pairs of routed links."""
