#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each function that the system's libibverbs exports to programs, called on the NIC: none may crash.

each_verb.py PROGRAM

PROGRAM is each_verb, which has to know them all. What rdma-core's own providers use of the library
(the node IBVERBS_PRIVATE) is not for programs and declared nowhere; nor can a program be linked to
the forms of before 2006 (IBVERBS_1.0) beside later ones of the same name. ibv_register_driver is
for providers, too.
"""
import subprocess
import sys

LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1"
FOR_PROVIDERS = {"ibv_register_driver"}


def exported():
    lines = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    symbols = [line.split()[-1] for line in lines if line.split()[1] == "T"]
    return {name.split("@")[0] for name in symbols if "IBVERBS_PRIVATE" not in name} - FOR_PROVIDERS


def main():
    program = sys.argv[1]
    known = set(subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split())
    bad = [f"{name}: each_verb does not call it" for name in sorted(exported() - known)]
    for name in sorted(known):
        done = subprocess.run([program, name], capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            bad.append(f"{name}: status {done.returncode} {done.stderr}")
    print("\n".join(bad) if bad else f"passed: {len(known)} functions")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
