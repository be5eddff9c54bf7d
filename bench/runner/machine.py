# SPDX-License-Identifier: Apache-2.0
"""What a report says of the machine and the programs, beside which its figures mean nothing."""
import datetime
import os
import pathlib
import platform
import re
import subprocess

PACKAGES = ("perftest", "iperf3", "sockperf", "libfabric1", "libucx0")


def _first(path, pattern):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text())
    except OSError:
        return ""
    return found[1].strip() if found else ""


def _versions():
    try:
        done = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES],
                              capture_output=True, text=True)
    except OSError:
        return {}
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.count(" ") == 1)


def facts(verbena, cores):
    version = subprocess.run([verbena, "--version"], capture_output=True, text=True).stdout
    return {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "processor": _first("/proc/cpuinfo", r"model name\s*:(.*)") or platform.machine(),
            "processors": os.cpu_count(), "cores": cores,
            "memory_gib": round(int(_first("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0) / (1 << 20), 1),
            "virtual_machine": bool(_first("/proc/cpuinfo", r"(\bhypervisor\b)")),
            "kernel": platform.release(), "verbena": version.strip().removeprefix("verbena "),
            "packages": _versions(), "load": os.getloadavg()[0]}
