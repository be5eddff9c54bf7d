// SPDX-License-Identifier: Apache-2.0
//
// Datagrams go by an address handle, which is made of what the peer has told.
// expect: no matching function for call to|no matching member function|cannot convert|could not
// convert
#include "compile_fail/rules.h"

void rule(const cm::datagram_peer& to, const queue_pair<ud>& qp, const address_handle& ah,
          const mr_slice& data) {
#ifdef RIGHT
  (void)qp.send({.ah = ah, .to = to.target().to, .key = to.target().key}, data);
#else
  (void)ah;
  (void)qp.send(to.target(), data);
#endif
}
