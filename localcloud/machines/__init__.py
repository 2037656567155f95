"""The machines behind the instances: booted, wired, told who they are, and ended."""
