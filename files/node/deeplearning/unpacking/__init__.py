"""Unpack a staged data set from the bucket to the shared file system. Several nodes unpack a share each."""
