"""Machine images: named after a hash of their contents, and used as read-only lower layers of machines' disks."""
