"""EC2 Auto Scaling of our own: groups that launch, watch, replace and end instances as time passes.

`records` is what is known, `engine` is what happens by itself, `ec2` is all that it asks of EC2. What callers can ask
for is in localcloud/api/autoscaling*.py.
"""
