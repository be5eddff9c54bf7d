# SPDX-License-Identifier: Apache-2.0
"""Where the two sides of a measurement are: both on this host, or on two hosts of which each has a
network namespace, joined by an Ethernet (veth). An ordinary user can make those, too."""
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess

LOOPBACK = "127.0.50.91"  # nobody's usual address, so that other NICs of the user are left alone
VETH = ("10.98.0.1", "10.98.0.2")  # as two-hosts has them
# What the first host's keeper runs. It has the rights that setting the link takes, which who comes by
# nsenter has not.
KEEPER = """echo $$ $VERBENA_OTHER_HOST
while read -r mtu state; do "$0" --link "$mtu" "$state" "$state" && echo set || echo failed; done"""


class NoHosts(Exception):
    """The two hosts cannot be made here."""


@dataclasses.dataclass(frozen=True)
class Link:
    """An Ethernet between two hosts; `offload` is segmentation and joining by its interfaces."""
    mtu: int
    offload: bool = True


class Hosts:
    """Makes the two hosts when they are first needed; they go with close()."""

    def __init__(self, script):
        self.script = pathlib.Path(script)
        self.keeper = None  # a process on the first host, whose end ends both
        self.trouble = None
        self.processes = ()
        self.link = None

    def close(self):
        if self.keeper:
            self.keeper.stdin.close()
            self.keeper.wait()
            self.keeper = None

    def words(self, side, words):
        """What runs `words` on a side, 0 or 1."""
        user = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={self.processes[side]}", *user, "--net", "--", *words]

    def set_link(self, link):
        """Makes the hosts and their Ethernet as wanted; raises NoHosts."""
        if self.trouble:
            raise NoHosts(self.trouble)
        try:
            if not self.keeper:
                self.make()
            if self.link != link:
                self.change(link)
        except NoHosts as trouble:
            self.trouble = str(trouble)
            self.close()
            raise

    def make(self):
        for program, package in (("ip", "iproute2"), ("ethtool", "ethtool"), ("nsenter", "util-linux")):
            if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
                raise NoHosts(f"there is no {program}; as root: apt-get install {package}")
        if not self.script.exists():
            raise NoHosts(f"{self.script} is missing")
        self.keeper = subprocess.Popen(
            [str(self.script), "sh", "-c", KEEPER, str(self.script)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        said = self.keeper.stdout.readline()
        found = re.fullmatch(r"(\d+) (\d+)\s*", said)
        if not found:
            raise NoHosts(f"two network namespaces cannot be made here: {said.strip()}")
        self.processes = (found[1], found[2])

    def change(self, link):
        self.keeper.stdin.write(f"{link.mtu} {'on' if link.offload else 'off'}\n")
        self.keeper.stdin.flush()
        said = []
        while not said or said[-1] not in ("set", "failed", ""):
            said.append(self.keeper.stdout.readline().strip())
        if said[-1] != "set":
            raise NoHosts(f"the Ethernet cannot be set: {' '.join(said)}")
        self.link = link
