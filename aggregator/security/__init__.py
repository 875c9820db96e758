"""Who may do what: policies, identities and the admission of proxies, derived from facts."""
