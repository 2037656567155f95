"""What is watched on the master: the members, how busy they are, and the runs. For Prometheus, and as a page."""
