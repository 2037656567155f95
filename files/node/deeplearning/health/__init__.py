"""The health check of a node: probes measure, checks judge what they return."""
