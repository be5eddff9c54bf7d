#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's multiprocessing with the NIC open in the parent: what forked children inherit is dead,
and they, like children that were started anew, open it for themselves."""
import multiprocessing
import sys

try:
    from pyverbs.device import Context, get_device_list
    from pyverbs.pd import PD
    from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
except ImportError:
    print("passed: without pyverbs there is nothing to try")
    sys.exit(0)

LONGEST = 30  # seconds


def open_device():
    return Context(name=get_device_list()[0].name.decode())


def uses_its_own(answers):
    with open_device() as context, PD(context):
        answers.put("works")


def uses_the_parents(context, answers):
    try:
        PD(context)
        answers.put("a protection domain was made with the parent's context")
    except (PyverbsError, PyverbsRDMAError) as error:
        answers.put("dead" if "Errno: 5" in str(error) or "Input/output" in str(error) else str(error))


def child(method, target, *arguments):
    ways = multiprocessing.get_context(method)
    answers = ways.Queue()
    process = ways.Process(target=target, args=(*arguments, answers))
    process.start()
    answer = answers.get(timeout=LONGEST)
    process.join(LONGEST)
    return answer if process.exitcode == 0 else f"status {process.exitcode}"


def main():
    with open_device() as context:
        checks = [
            ("a forked child cannot use its parent's", child("fork", uses_the_parents, context), "dead"),
            ("a forked child opens its own", child("fork", uses_its_own), "works"),
            ("a child that was started anew opens its own", child("spawn", uses_its_own), "works"),
            ("a child of the fork server opens its own", child("forkserver", uses_its_own), "works"),
        ]
        with PD(context):
            checks.append(("the parent goes on", "works", "works"))
    for name, got, wanted in checks:
        print(f"{'passed' if got == wanted else 'FAILED'}: {name}{'' if got == wanted else ': ' + got}")
    return 0 if all(got == wanted for _, got, wanted in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
