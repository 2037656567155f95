"""Requests and answers against the models of AWS's services in botocore."""
