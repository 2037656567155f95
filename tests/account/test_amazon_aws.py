"""The local cloud answers the amazon.aws modules that make a cluster's resources: a second run changes nothing."""

from __future__ import annotations

import time
from pathlib import Path

from tests.account.kit import REGION, Account

TASKS = """
- name: Make resources by amazon.aws
  hosts: localhost
  connection: local
  gather_facts: false
  module_defaults:
    group/amazon.aws.aws:
      region: us-east-1
  vars:
    ours: {"deeplearning:cluster": red}
    by_tag: {"tag:deeplearning:cluster": red}
  tasks:
    - name: Work in a role
      amazon.aws.sts_assume_role:
        role_arn: "{{ role }}"
        role_session_name: deeplearning
      changed_when: false

    - name: Make the bucket
      amazon.aws.s3_bucket:
        name: red-bucket
        encryption: AES256
        object_ownership: BucketOwnerEnforced
        public_access:
          block_public_acls: true
          ignore_public_acls: true
          block_public_policy: true
          restrict_public_buckets: true
        tags: "{{ ours }}"
        purge_tags: false

    - name: Describe the bucket
      amazon.aws.s3_bucket_info:
        name: red-bucket
        bucket_facts:
          bucket_accelerate_configuration: true
          bucket_acl: true
          bucket_encryption: true
          bucket_location: true
          bucket_ownership_controls: true
          bucket_policy: true
          bucket_policy_status: true
          bucket_request_payment: true
          bucket_tagging: true
          bucket_versioning: true
          public_access_block: true

    - name: Make the VPC
      amazon.aws.ec2_vpc_net:
        name: red-vpc
        cidr_block: 10.0.0.0/16
        dns_support: true
        dns_hostnames: true
        tags: "{{ ours }}"
        purge_tags: false
      register: vpc

    - name: Make the internet gateway
      amazon.aws.ec2_vpc_igw:
        vpc_id: "{{ vpc['vpc']['id'] }}"
        tags: "{{ ours | combine({'Name': 'red-igw'}) }}"
        purge_tags: false
      register: igw

    - name: Make the subnets
      amazon.aws.ec2_vpc_subnet:
        vpc_id: "{{ vpc['vpc']['id'] }}"
        az: us-east-1a
        cidr: "{{ item }}"
        tags: "{{ ours | combine({'Name': item}) }}"
        purge_tags: false
      loop: [10.0.0.0/24, 10.0.1.0/24]
      register: subnets

    - name: Describe the addresses
      amazon.aws.ec2_eip_info:
        filters: "{{ by_tag }}"
      register: addresses

    - name: Allocate the addresses
      amazon.aws.ec2_eip:
        in_vpc: true
        tags: "{{ ours | combine({'Name': item}) }}"
      loop: [red-nat, red-master]
      when: addresses['addresses'] | length == 0

    - name: Describe the addresses again
      amazon.aws.ec2_eip_info:
        filters: "{{ by_tag }}"
      register: addresses

    - name: Make the NAT gateway
      amazon.aws.ec2_vpc_nat_gateway:
        subnet_id: "{{ subnets['results'][0]['subnet']['id'] }}"
        allocation_id: "{{ addresses['addresses'][0]['allocation_id'] }}"
        if_exist_do_not_create: true
        tags: "{{ ours | combine({'Name': 'red-nat'}) }}"
        purge_tags: false
        wait: false
      register: nat

    - name: Wait for the NAT gateway
      amazon.aws.ec2_vpc_nat_gateway_info:
        filters: "{{ by_tag }}"
      register: nats
      until: nats['result'][0]['state'] == 'available'
      retries: 20
      delay: 1

    - name: Make the route tables
      amazon.aws.ec2_vpc_route_table:
        vpc_id: "{{ vpc['vpc']['id'] }}"
        routes:
          - {dest: 0.0.0.0/0, gateway_id: "{{ item[1] }}"}
        purge_routes: false
        subnets: ["{{ item[2] }}"]
        tags: "{{ ours | combine({'Name': item[0]}) }}"
        purge_tags: false
      loop:
        - [red-public, "{{ igw['gateway_id'] }}", "{{ subnets['results'][0]['subnet']['id'] }}"]
        - [red-private, "{{ nat['nat_gateway_id'] }}", "{{ subnets['results'][1]['subnet']['id'] }}"]
      register: tables

    - name: Make the S3 endpoint
      amazon.aws.ec2_vpc_endpoint:
        vpc_id: "{{ vpc['vpc']['id'] }}"
        service: com.amazonaws.us-east-1.s3
        vpc_endpoint_type: Gateway
        route_table_ids: "{{ tables['results'] | map(attribute='route_table.id') }}"
        tags: "{{ ours | combine({'Name': 'red-s3'}) }}"
        purge_tags: false

    - name: Make the members' security group
      amazon.aws.ec2_security_group:
        name: red-members
        description: members
        vpc_id: "{{ vpc['vpc']['id'] }}"
        rules:
          - {proto: all, group_name: red-members}
        rules_egress:
          - {proto: all, group_name: red-members}
          - {proto: all, cidr_ip: 0.0.0.0/0}
        tags: "{{ ours }}"
        purge_tags: false
      register: members

    - name: Make the file system's security group
      amazon.aws.ec2_security_group:
        name: red-efs
        description: mount targets
        vpc_id: "{{ vpc['vpc']['id'] }}"
        rules:
          - {proto: tcp, ports: 2049, group_id: "{{ members['group_id'] }}"}
        rules_egress: []
        tags: "{{ ours }}"
        purge_tags: false

    - name: Make the security group of ssh
      amazon.aws.ec2_security_group:
        name: red-ssh
        description: ssh
        vpc_id: "{{ vpc['vpc']['id'] }}"
        rules:
          - {proto: tcp, ports: 22, cidr_ip: 198.51.100.1/32, rule_desc: "{{ words | default('ours') }}"}
          - {proto: tcp, ports: 22, cidr_ipv6: "2001:db8::/64", rule_desc: ours}
        rules_egress: []
        tags: "{{ ours }}"
        purge_tags: false

    - name: Import the key
      amazon.aws.ec2_key:
        name: red-key
        key_material: "{{ lookup('ansible.builtin.file', public_key) }}"
        tags: "{{ ours }}"

    - name: Make the placement group
      amazon.aws.ec2_placement_group:
        name: red
        strategy: cluster
        tags: "{{ ours }}"

    - name: Make the launch template
      amazon.aws.ec2_launch_template:
        template_name: red-workers
        image_id: "{{ image }}"
        instance_type: g4dn.xlarge
        key_name: red-key
        security_group_ids: ["{{ members['group_id'] }}"]
        placement: {group_name: red}
        instance_market_options: {market_type: spot, spot_options: {spot_instance_type: one-time}}
        metadata_options:
          http_endpoint: enabled
          http_tokens: required
          http_put_response_hop_limit: 1
          instance_metadata_tags: disabled
        block_device_mappings:
          - device_name: /dev/sda1
            ebs: {volume_size: 30, volume_type: gp3, encrypted: true, delete_on_termination: true}
        tag_specifications:
          - {resource_type: instance, tags: "{{ ours | combine({'deeplearning:gpus': gpus | default('1')}) }}"}
          - {resource_type: volume, tags: "{{ ours }}"}
          - {resource_type: network-interface, tags: "{{ ours }}"}
          - {resource_type: spot-instances-request, tags: "{{ ours }}"}
        tags: "{{ ours | combine({'Name': 'red-workers'}) }}"
        purge_tags: false
        source_version: ""
      register: template

    - name: Describe the groups
      amazon.aws.autoscaling_group_info:
        tags: "{{ ours }}"
      register: existing

    # The module writes whenever it runs.
    - name: Make the group
      amazon.aws.autoscaling_group:
        name: red-workers
        launch_template:
          launch_template_id: "{{ template['template']['launch_template_id'] }}"
          version: "{{ template['latest_version'] }}"
        min_size: 0
        max_size: "{{ size | default(1) }}"
        desired_capacity: 1
        vpc_zone_identifier: ["{{ subnets['results'][1]['subnet']['id'] }}"]
        health_check_period: 300
        suspend_processes: [AZRebalance]
        tags:
          - "{{ ours | combine({'Name': 'red-workers', 'propagate_at_launch': false}) }}"
          - {"deeplearning:role": worker, propagate_at_launch: true}
        wait_for_instances: false
      register: group
      changed_when: group is changed and existing['results'] | length == 0

    - name: Describe the resources
      ansible.builtin.include_tasks: describe.yml
"""

DESCRIBE = """
- name: Describe the VPC
  amazon.aws.ec2_vpc_net_info:
    filters: "{{ by_tag }}"
  register: found
  failed_when: found['vpcs'] | length != 1

- name: Describe the subnets
  amazon.aws.ec2_vpc_subnet_info:
    filters: "{{ by_tag }}"
  register: found
  failed_when: found['subnets'] | length != 2

- name: Describe the internet gateway
  amazon.aws.ec2_vpc_igw_info:
    filters: "{{ by_tag }}"
  register: found
  failed_when: found['internet_gateways'] | length != 1

- name: Describe the route tables
  amazon.aws.ec2_vpc_route_table_info:
    filters: "{{ by_tag | combine({'vpc-id': vpc['vpc']['id']}) }}"
  register: found
  failed_when: found['route_tables'] | length != 2

- name: Describe the endpoint
  amazon.aws.ec2_vpc_endpoint_info:
    filters: "{{ by_tag }}"
  register: found
  failed_when: found['vpc_endpoints'] | length != 1

- name: Describe the security groups
  amazon.aws.ec2_security_group_info:
    filters: "{{ by_tag | combine({'vpc-id': vpc['vpc']['id']}) }}"
  register: found
  failed_when: found['security_groups'] | length != 3

- name: Describe the key
  amazon.aws.ec2_key_info:
    names: [red-key]
  register: found
  failed_when: found['keypairs'] | length != 1

- name: Describe the machines
  amazon.aws.ec2_instance_info:
    filters: {"tag:aws:autoscaling:groupName": red-workers, instance-state-name: [pending, running]}
  register: found
  until: found['instances'] | length == 1
  retries: 20
  delay: 1

- name: Associate the address
  amazon.aws.ec2_eip:
    in_vpc: true
    public_ip: "{{ addresses['addresses'][1]['public_ip'] }}"
    device_id: "{{ found['instances'][0]['network_interfaces'][0]['network_interface_id'] }}"
    allow_reassociation: true
"""


def test_modules_change_nothing_a_second_time(account: Account, tmp_path: Path) -> None:
    (tmp_path / "make.yml").write_text(TASKS)
    (tmp_path / "describe.yml").write_text(DESCRIBE)
    ec2 = account.client("ec2", REGION)
    image = ec2.describe_images(Filters=[{"Name": "name", "Values": ["localcloud-api-only"]}])["Images"][0]
    account.settings = {
        "role": account.role("worker"),
        "public_key": f"{account.key()}.pub",
        "image": image["ImageId"],
    }
    first = account.play(str(tmp_path / "make.yml"))
    assert first.code == 0, first.output
    assert "WARNING" not in first.output, first.output

    began = time.time()
    second = account.play(str(tmp_path / "make.yml"))
    assert (second.code, second.changed) == (0, 0), second.output
    # autoscaling_group writes whenever it runs; ec2_key imports a key under another name to learn its fingerprint.
    expected = ["autoscaling:DisableMetricsCollection", "autoscaling:UpdateAutoScalingGroup"]
    assert sorted(set(account.writes(began))) == [*expected, "ec2:DeleteKeyPair", "ec2:ImportKeyPair"]

    third = account.play(str(tmp_path / "make.yml"), words="others", gpus="2", size=2)
    # The rule and the template; `changed_when` leaves the group out.
    assert (third.code, third.changed) == (0, 2), third.output
    [ssh] = ec2.describe_security_groups(Filters=[{"Name": "group-name", "Values": ["red-ssh"]}])["SecurityGroups"]
    assert ssh["IpPermissions"][0]["IpRanges"] == [{"CidrIp": "198.51.100.1/32", "Description": "others"}]
    [group] = account.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert (group["MaxSize"], group["LaunchTemplate"]["Version"]) == (2, "2")
