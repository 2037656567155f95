"""The machines behind the instances: their processes, network, metadata and file systems."""
