"""The router's links: of producers and consumers, and between routers."""
