"""Records of connections, containers, and watches of frames."""
