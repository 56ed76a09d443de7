"""Links: the decision about an attach, link records, links that the router initiates, auto links."""
