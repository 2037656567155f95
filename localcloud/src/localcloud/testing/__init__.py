"""The public Python interface of the local cloud, for tests of programs that use AWS.

| module | contents |
| --- | --- |
| `account` | an AWS account in this process, behind an HTTP endpoint, without machines |
| `booted` | the local cloud as a service with booted machines: start, stop, faults, clients, networks, ssh |
| `fixtures` | both as fixtures of pytest |
| `clock`, `faults`, `latency` | time that tests advance, failures on request, and how long things take |
| `clients` | boto3 clients for which nothing is late |
| `catalog`, `facts` | images, instance types, prices; names, numbers and quotas |
| `errors` | AWS's errors in its own words |
| `policies` | evaluation of IAM policies |
| `models` | requests and answers compared with the models of AWS's services |
| `images` | the machines' image, recipes of features, and mounts for builds |
| `gpus`, `tls` | NVIDIA's management library without a GPU; an authority for certificates |

Code outside of this package imports nothing else of it.
"""
