"""Elastic MapReduce: clusters of uniform instance groups, whose nodes are EC2 instances with bootstrap actions."""
