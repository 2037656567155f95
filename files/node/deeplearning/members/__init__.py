"""The members of the cluster: reports, the published list, and the files that follow it."""
