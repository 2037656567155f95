"""What timers repeat on each node: the commands of `deeplearning members`, and the cluster's end."""
