"""Agents are forwarded, members log in to each other by their host keys, and sshd keeps its sessions."""

from __future__ import annotations

import os
import subprocess

from remote import FOLDER, output, run

# sshd was reloaded, not restarted: its process is the one of the boot.
assert output("systemctl show -P NRestarts ssh") == "0"
started = 'date -d "$(systemctl show -P ExecMainStartTimestamp ssh)" +%s'
assert int(output(started)) < (FOLDER / "machine.json").stat().st_mtime + 1
assert output("stat -c %U:%G:%a /usr/lib/openssh/ssh-keysign") == "root:root:4755"

printed = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
agent = dict(part.split("=", 1) for part in printed.replace("\n", ";").split(";") if "=" in part)
os.environ["SSH_AUTH_SOCK"] = agent["SSH_AUTH_SOCK"]
try:
    subprocess.run(["ssh-add", "-q", FOLDER / "key"], check=True)
    assert "ED25519" in output("ssh-add -l", "-A")
finally:
    subprocess.run(["kill", agent["SSH_AGENT_PID"]], check=True)
assert run("ssh-add -l").returncode != 0

# All members may come at once: sshd accepts many connections that have yet to log in.
crowd = """
import socket
callers = [socket.create_connection(("localhost", 22), timeout=20) for _ in range(60)]
assert all(caller.recv(4) == b"SSH-" for caller in callers)
"""
output(f"python3 -c '{crowd}'")

# The machine is its own fellow member: its address and its key are known.
name = "echo $(hostname -I) fellow | sudo tee -a /etc/hosts"
hosts = "$(hostname -I | tr -d ' '),fellow"
key = f"echo \"{hosts} $(cut -d' ' -f1,2 /etc/ssh/ssh_host_ed25519_key.pub)\" | sudo tee /etc/ssh/ssh_known_hosts"
login = "ssh -o BatchMode=yes -o HostbasedAuthentication=yes -o PreferredAuthentications=hostbased fellow id -un"
output(f"{name} && {key}")
assert run(login).returncode != 0, "it is in no list of members yet"
output("echo fellow | sudo tee /etc/ssh/shosts.equiv")
assert run(login).returncode != 0, "a name that the client sends does not tell where it is"
output("hostname -I | sudo tee /etc/ssh/shosts.equiv")
assert output(login) == "ubuntu"
# A user's own list does not count.
output("sudo rm /etc/ssh/shosts.equiv && hostname -I > .shosts")
assert run(login).returncode != 0
