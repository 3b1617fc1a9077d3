/* SPDX-License-Identifier: MIT
 *
 * A file over another file, with faults put in: the nth operation fails, and a crash loses what was not synced.
 *
 * Every change goes to the file below at once and also into a log, which sync empties. A crash rebuilds, into a file of the
 * caller's, what a disk could hold after the power failed: all that was synced, and of the log, in order, a random
 * choice of the 512-byte sectors of each write (and of the truncates, zeroes, discards).
 * Invariant: base copy + whole log = the file below.
 */
#ifndef QCOW2_STORAGE_FILE_FAULT_H
#define QCOW2_STORAGE_FILE_FAULT_H

#include "storage/file.h"

enum file_fault_kind { /* bits: which operations a fault counts and hits */
    FILE_FAULT_READ = 1,
    FILE_FAULT_WRITE = 2, /* write, zero, discard, allocate and truncate are told apart by their own bits */
    FILE_FAULT_ZERO = 4,
    FILE_FAULT_DISCARD = 8,
    FILE_FAULT_ALLOCATE = 16,
    FILE_FAULT_TRUNCATE = 32,
    FILE_FAULT_SYNC = 64,
    FILE_FAULT_ANY = 127,
};

struct file_fault_rule {
    unsigned kinds; /* bits of file_fault_kind */
    uint64_t nth;   /* the nth matching operation from now fails; 1 = the next */
    uint64_t times; /* how many fail from there on; 0 = all that follow */
    int code;       /* the negative errno they fail with */
    bool partial;   /* a write that fails leaves its first half written */
};

/* A file over `below` (shared, not taken). With `crashes`, keeps a log so that file_fault_crash works. */
int file_fault_new(struct file *below, bool crashes, struct file **file);

/* Sets the one rule; NULL removes it. Restarts the counts. */
void file_fault_set(struct file *file, const struct file_fault_rule *rule);

/* Matching operations seen since the rule was set, and how many of them failed. */
void file_fault_counts(struct file *file, uint64_t *seen, uint64_t *failed);

/* Writes into `target` what a crash now could leave: each unsynced sector is kept with a chance of keep_percent (0–100), by `seed`. */
int file_fault_crash(struct file *file, struct file *target, uint64_t seed, unsigned keep_percent, struct error *error);

#endif
