/* SPDX-License-Identifier: MIT
 *
 * The third of three rooms (census → check → repair): acts on what check found. It writes to the image's file, in an order that a crash
 * may interrupt anywhere: whatever is on disk is no worse than before, and repairing again ends the work.
 */
#ifndef QCOW2_IMAGE_REPAIR_H
#define QCOW2_IMAGE_REPAIR_H

#include "image/census.h"

/* Preallocated zero clusters with an impossible host offset give it up; they read as zeroes as before. Take the census anew after it. */
int repair_zeroes(struct census *census, struct error *error);

/* Makes stored refcounts what the tally says: higher ones (`raise`) with new refcount blocks and a new refcount table where
 * the old ones are no good, and lower ones (`lower`) unless something could not be traced. */
int repair_refcounts(struct census *census, bool raise, bool lower, struct error *error);

/* Makes COPIED in active entries agree with the stored refcounts. */
int repair_copied(struct census *census, struct error *error);

#endif
