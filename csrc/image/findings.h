/* SPDX-License-Identifier: MIT
 *
 * What a check finds: a list of findings, bounded, and totals, which are always true.
 */
#ifndef QCOW2_IMAGE_FINDINGS_H
#define QCOW2_IMAGE_FINDINGS_H

#include <stdbool.h>
#include <stdint.h>

enum finding_kind {
    FINDING_LEAK,             /* the stored refcount is higher than the references */
    FINDING_REFCOUNT_LOW,     /* it is lower */
    FINDING_REFCOUNT_UNKNOWN, /* it cannot be read */
    FINDING_REFCOUNT_FULL,    /* more references than a refcount of this width holds */
    FINDING_COPIED,           /* COPIED is set and the refcount is not 1, or the other way round */
    FINDING_RESERVED,         /* reserved bits are set */
    FINDING_UNALIGNED,        /* an offset is not cluster-aligned */
    FINDING_OUTSIDE,          /* what an offset names passes the file's end */
    FINDING_OVERLAP,          /* a refcount block or the refcount table lies where something else is */
    FINDING_CONTRADICTION,    /* the bits of an entry contradict each other */
    FINDING_TOO_LARGE,        /* a table is over the format's limits */
    FINDING_INCOMPLETE,       /* an entry lacks what its version must have */
    FINDING_UNREADABLE,       /* reading failed, or what was read makes no sense at all */
};

enum finding_weight {
    WEIGHT_LEAK,        /* space is lost, nothing else */
    WEIGHT_CORRUPTION,  /* data may be corrupt, or become so */
    WEIGHT_CHECK_ERROR, /* the check itself could not look */
};

struct finding {
    enum finding_kind kind;
    enum finding_weight weight;
    const char *structure; /* the specification's name of where it is */
    uint64_t host_offset;  /* bytes: what the finding is about */
    uint64_t guest_offset; /* bytes; UINT64_MAX: none */
    uint64_t times;        /* how often it counts: a table that snapshots share is found once for all of them */
    bool repaired;
    char text[160]; /* the line that people and scripts know */
};

struct findings {
    struct finding *items;
    uint64_t count, capacity, most; /* listed; the bound on the list */
    uint64_t unlisted;              /* found when the list was full */
    uint64_t corruptions, leaks, check_errors;
    uint64_t corruptions_fixed, leaks_fixed;
};

/* Counts a finding and lists it if there is room. `finding` needs no text. Returns the listed one, for its `repaired`, or NULL. */
struct finding *findings_add(struct findings *findings, struct finding finding, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The kind's name: "leak", "refcount-low", … */
const char *finding_kind_name(enum finding_kind kind);

/* Gives the list's memory back; the totals stay. */
void findings_clear(struct findings *findings);

#endif
