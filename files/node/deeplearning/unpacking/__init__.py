"""A staged data set from the bucket to the shared file system, unpacked by several nodes at once, each its share."""
