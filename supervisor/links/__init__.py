"""Links: the decision about an attach, records, links that the router initiates, auto links."""
