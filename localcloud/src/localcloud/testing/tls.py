"""An authority that issues a certificate for each name that a client asks for."""

from localcloud.endpoint.tls import Authority as Authority
