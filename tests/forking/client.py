# The interpreter that Ansible starts for a module on localhost. It waits for the module's exit code.
# ForkingPython writes the first line: a Python without its site-packages, which starts in 10 ms.
import array
import json
import os
import socket
import subprocess
import sys

if len(sys.argv) != 1:
    # Anything but a module, which comes as standard input: Ansible's own questions, and scripts of playbooks.
    sys.exit(subprocess.call([sys.executable, *sys.argv[1:]]))
request = {"cwd": os.getcwd(), "environment": dict(os.environ)}
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "socket"))
standard = array.array("i", [0, 1, 2])
server.sendmsg([json.dumps(request).encode() + b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, standard)])
answer = server.recv(1)
os._exit(answer[0] if answer else 1)
