"""Who is in the cluster."""
