/* SPDX-License-Identifier: MIT
 *
 * The second of three rooms (census → check → repair): compares the census with the stored refcounts and the COPIED flags.
 * It only reads. Findings go to census->findings.
 */
#ifndef QCOW2_IMAGE_CHECK_H
#define QCOW2_IMAGE_CHECK_H

#include "image/census.h"

/* Compares each host cluster's stored refcount with its references, notes it beside them in the tally, and finds the end of what is in
 * use. Returns 0 or -ENOMEM. */
int check_refcounts(struct census *census);

/* Compares COPIED in the active L1 and L2 tables with the stored refcounts, as the tally has them after check_refcounts. */
void check_copied(struct census *census);

/* What COPIED should be for the cluster at a host offset, as the tally has it: whether its stored refcount is 1. */
bool check_is_single(struct census *census, uint64_t host_offset);

/* Whether COPIED of a standard L2 entry has to be judged, and what is wrong with it. */
bool check_entry_copied_wrong(struct census *census, uint64_t entry);

#endif
