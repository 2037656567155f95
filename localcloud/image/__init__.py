"""Machine images: built once, kept by the hash of what goes into them, booted from as read-only lower layers."""
