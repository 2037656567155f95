"""An agent comes along, machines log in to each other by their host keys, and nobody was thrown out for it."""

from __future__ import annotations

import os
import subprocess

from seen import FOLDER, says, ssh

# sshd was reloaded and not restarted: it is the one that was started when the machine booted.
assert says("systemctl show -P NRestarts ssh") == "0"
started = 'date -d "$(systemctl show -P ExecMainStartTimestamp ssh)" +%s'
assert int(says(started)) < (FOLDER / "machine.json").stat().st_mtime + 1
assert says("stat -c %U:%G:%a /usr/lib/openssh/ssh-keysign") == "root:root:4755"

said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
agent = dict(part.split("=", 1) for part in said.replace("\n", ";").split(";") if "=" in part)
os.environ["SSH_AUTH_SOCK"] = agent["SSH_AUTH_SOCK"]
try:
    subprocess.run(["ssh-add", "-q", FOLDER / "key"], check=True)
    assert "ED25519" in says("ssh-add -l", "-A")
finally:
    subprocess.run(["kill", agent["SSH_AGENT_PID"]], check=True)
assert ssh("ssh-add -l").returncode != 0

# Fellow members come all at once: of many that have yet to log in, sshd turns none away.
crowd = """
import socket
callers = [socket.create_connection(("localhost", 22), timeout=20) for _ in range(60)]
assert all(caller.recv(4) == b"SSH-" for caller in callers)
"""
says(f"python3 -c '{crowd}'")

# The machine as its own fellow member: its address and its key are known.
name = "echo $(hostname -I) fellow | sudo tee -a /etc/hosts"
hosts = "$(hostname -I | tr -d ' '),fellow"
key = f"echo \"{hosts} $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)\" | sudo tee /etc/ssh/ssh_known_hosts"
login = "ssh -o BatchMode=yes -o HostbasedAuthentication=yes -o PreferredAuthentications=hostbased fellow id -un"
says(f"{name} && {key}")
assert ssh(login).returncode != 0, "nobody has said yet that it is a fellow member"
says("echo fellow | sudo tee /etc/ssh/shosts.equiv")
assert ssh(login).returncode != 0, "a name that the client sends says nothing about where it is"
says("hostname -I | sudo tee /etc/ssh/shosts.equiv")
assert says(login) == "ubuntu"
# What a user believes is no matter.
says("sudo rm /etc/ssh/shosts.equiv && hostname -I > .shosts")
assert ssh(login).returncode != 0
