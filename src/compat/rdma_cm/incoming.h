// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cm/event.h"
#include "compat/rdma_cm/agent.h"

/// What the managers tell, and what of it the program is told. With the agent's lock held.
namespace verbena::compat::rdma_cm {

void take_event(Agent& agent, Port& port, const cm::Event& event);

}  // namespace verbena::compat::rdma_cm
