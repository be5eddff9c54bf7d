// SPDX-License-Identifier: Apache-2.0
#include "verbena/async/task.h"

#include <gtest/gtest.h>
