"""EC2: what the local cloud answers itself, by topic. Everything else is moto's.

| module | what |
| --- | --- |
| patches | what is mended in moto itself |
| records | what is kept in addition to moto's records, and how both are looked up |
| errors, filters | frequent refusals; filters, pages, tags of a call |
| images, own_images | Amazon Machine Images; those that the account makes of its instances |
| instance | one instance |
| launch_data, templates | which data a launch uses; launch templates |
| run_request, run_network, capacity, run | RunInstances: validated, placed, counted, made |
| lifecycle | the states of an instance, and what machines report |
| instances | DescribeInstances and its relatives |
| interfaces | DescribeNetworkInterfaces |
| views | what machines, network and metadata service need |
| tags, security_groups | tags, security groups |
| deletions | what cannot be deleted, and why |
| networks | mistakes in a network that moto accepts |
| addresses, nat, placement, profiles, instance_types | Elastic IPs, NAT gateways, placement groups … |
| encryption | the fault `ebs-key` |
| late_reads, late_tags | new resources and tags that the first call misses; the faults `late-reads` and `late-tags` |
"""
