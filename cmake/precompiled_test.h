// SPDX-License-Identifier: Apache-2.0
//
// What most tests include, parsed once where the build precompiles it (VERBENA_PCH).
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precompiled.h"
