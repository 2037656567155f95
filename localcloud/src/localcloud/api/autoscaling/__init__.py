"""EC2 Auto Scaling: groups that launch, check, replace and terminate instances over time.

`groups`, `instances`, `schedule` and `tags` answer calls. `engine` is what happens by itself, `records` is
what is stored, and `ec2` has the calls of EC2 that it makes.
"""
