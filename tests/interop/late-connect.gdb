# SPDX-License-Identifier: Apache-2.0
# Runs a program which waits for a second before each rdma_connect(), as one on a slow machine would.
set pagination off
set breakpoint pending on
break rdma_connect
commands
  silent
  shell sleep 1
  continue
end
run
