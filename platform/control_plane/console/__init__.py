"""The web console's own services: overview, live events, webhooks and the operator's pages."""
