"""The API: the services, with a module for each, and IAM's enforcement."""
