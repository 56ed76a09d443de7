"""Link routes: which attaches go to a container, here or at another router, and the pairs of links."""
