"""HTTP: sockets, limits, and which page is answered to which path."""
