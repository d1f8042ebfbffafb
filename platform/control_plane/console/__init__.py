"""What the web console needs beside the tenant's own data: overview, live events, webhooks and the operator's pages."""
