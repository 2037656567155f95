"""Elastic File System."""
