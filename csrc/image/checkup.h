/* SPDX-License-Identifier: MIT
 *
 * A whole check of an image in a file, with repair if asked for: census → check → repair → once more.
 */
#ifndef QCOW2_IMAGE_CHECKUP_H
#define QCOW2_IMAGE_CHECKUP_H

#include "image/findings.h"
#include "storage/file.h"

#define CHECKUP_FINDINGS 10000u
#define CHECKUP_MEMORY (UINT64_C(2) << 30)

enum checkup_repair {
    CHECKUP_LOOK,      /* change nothing */
    CHECKUP_FIX_LEAKS, /* lower refcounts, and set COPIED right */
    CHECKUP_FIX_ALL,   /* also raise them, rebuild their structure, and drop impossible offsets of zero clusters */
};

struct checkup_options {
    enum checkup_repair repair;
    uint64_t max_findings; /* the bound on the lists */
    uint64_t memory_limit; /* bytes */
};

struct checkup {               /* the numbers are those of the last look, so after a repair what is left */
    struct file *file;         /* while it runs */
    struct findings findings;  /* of the first look; its totals of what was fixed are those of the whole checkup */
    struct findings left;      /* of the look after a repair; empty when there was none */
    uint64_t image_end_offset; /* bytes */
    uint64_t total_clusters, allocated_clusters, fragmented_clusters, compressed_clusters; /* guest clusters of the active image */
    uint64_t check_errors, corruptions, leaks;
    bool looked_twice;   /* something was repaired */
    bool rebuild_needed; /* FIX_LEAKS was asked for, but only FIX_ALL can help: nothing was changed */
};

/* Checks the image in `file`. When a repair leaves no corruption, its dirty and corrupt bits are cleared. Returns 0 whatever is found; a negative
 * errno when there is nothing that can be checked, or a repair failed on the way. `checkup` has to be ended in any case. */
int checkup_run(struct checkup *checkup, struct file *file, const struct checkup_options *options, struct error *error);

void checkup_end(struct checkup *checkup);

#endif
