"""The HTTP endpoint: server, certificates, signatures, and who answers a request."""
