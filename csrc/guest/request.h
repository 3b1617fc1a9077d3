/* SPDX-License-Identifier: MIT
 *
 * One guest request and its life: plan → move → link. The caller owns the struct (on its stack, or in a queue's slot), fills
 * the first part, calls request_start, and then, until REQUEST_DONE, carries out what request_advance asks for.
 *
 *            ┌────────────── piece linked (link_piece), more to do ──────────────┐
 *            ▼                                                                    │
 *   start ─ PLAN ── moves (plan_*) ──▶ MOVE ─────────────────────────────────────┤
 *            │ ▲                        ▲                                         │
 *            │ │                        └─ EDGES ◀─ edges to read (cow_edges) ─┐  │
 *            │ └─ published ─ TABLE ◀─ WANT_READ ─┤                            │  │
 *            │ └─ woken ───── parked ◀─ WANT_WAIT ┤                            │  │
 *            │ └─ round over ─ FLUSH ◀─ WANT_FLUSH┤                            │  │
 *            └────────────────────────────────────┴────────────────────────────┘  │
 *            any failure, or all done ──▶ NOTE (corrupt image: header) ──▶ DONE ◀─┘
 *
 * The first change of an image with autoclear features goes from start to CLAIM (the header loses those not kept) before PLAN.
 */
#ifndef QCOW2_GUEST_REQUEST_H
#define QCOW2_GUEST_REQUEST_H

#include "guest/image.h"
#include "metadata/cover.h"
#include "storage/move.h"

enum request_kind {
    REQUEST_READ,     /* guest bytes → bytes */
    REQUEST_WRITE,    /* bytes → guest bytes */
    REQUEST_PACK,     /* the same, compressed where that makes it smaller; whole clusters, but for the last one of the disk */
    REQUEST_ZERO,     /* guest bytes become zeroes */
    REQUEST_DISCARD,  /* whole clusters are given up and read as zeroes; partial ones are left alone */
    REQUEST_ALLOCATE, /* clusters that are unallocated get host clusters, which read as they did (preallocation) */
    REQUEST_FLUSH,    /* all that was written before is durable afterwards */
    REQUEST_RESIZE,   /* the virtual size becomes guest_offset bytes */
    REQUEST_TAKE,     /* value: the host offset of `length` clusters in a row that are ours from now on */
    REQUEST_REFER,    /* `length` host clusters from number guest_offset on have one reference more; `done` of them after a failure */
    REQUEST_LOOKUP,   /* run: where guest_offset lies, in this image alone */
    REQUEST_REFCOUNT, /* value: the refcount of host cluster guest_offset (a cluster number) */
};

enum request_step {
    REQUEST_MOVE,   /* carry out request->moves, tell request_moved, advance again */
    REQUEST_PARKED, /* request->wake will be called; advance again after that */
    REQUEST_DONE,   /* over: request->error tells how */
};

enum request_state {
    STATE_CHECK,  /* nothing has happened yet */
    STATE_CLAIM,  /* the header is being told, before the first change, that autoclear features are not kept */
    STATE_PLAN,   /* between pieces: holds nothing */
    STATE_TABLE,  /* a table is being read for a plan */
    STATE_EDGES,  /* a piece's edges are being read */
    STATE_MOVE,   /* a piece's bytes are moving */
    STATE_FLUSH,  /* a flush round is under way, or waited for */
    STATE_FAILED, /* an error is set, nothing is held */
    STATE_NOTE,   /* the header is being told */
    STATE_DONE,
};

enum piece_kind {
    PIECE_NONE,
    PIECE_BYTES,  /* bytes to or from clusters whose mapping stays */
    PIECE_DATA,   /* clusters that were just taken, or that an entry keeps, and will be linked */
    PIECE_PACKED, /* a compressed cluster */
    PIECE_CLEAR,  /* entries whose bytes in the external data file go first */
    PIECE_TABLE,  /* a new L2 table, empty or a copy of a shared one */
    PIECE_COVER,  /* refcount blocks */
    PIECE_GROW,   /* a longer file */
};

struct reading { /* a read of guest bytes on its way down the chain */
    struct image *top;
    uint64_t guest_offset, length, done; /* bytes */
    uint8_t *bytes;
    uint8_t *packed;       /* a compressed cluster's bytes while they are read; owned */
    struct run packed_run; /* the run of guest bytes that is in it */
    uint64_t packed_at;    /* packed_level->unpacked.given_up when it was looked up */
    struct image *packed_level;
};

struct piece { /* the part of a request that is under way */
    enum piece_kind kind;
    uint64_t progress;                 /* guest bytes of the request that are done when it is linked */
    uint64_t guest_offset, count;      /* DATA: first cluster's start, clusters; TABLE: where in guest space; COVER: extra clusters */
    uint64_t host_offset;              /* PACKED: where its first byte goes; host_cluster and count are the clusters it lies in */
    uint64_t host_cluster;             /* DATA, TABLE: the first new cluster; COVER: the first extra one */
    bool taken, fresh;                 /* the clusters were just taken; they were never written */
    struct slot *slot;                 /* DATA: the pinned L2 slice */
    uint64_t span_start, span_end;     /* DATA: guest bytes that are mapped when it is linked */
    uint64_t head_length, tail_length; /* DATA: bytes of the span before and after the guest's own */
    bool head_zero, tail_zero;         /* they read as zeroes */
    uint8_t *buffer;                   /* DATA: head and tail; TABLE: the table; owned */
    struct cover cover;
};

struct packed { /* a guest cluster, compressed */
    bool is_set;
    uint64_t at;     /* its guest offset */
    uint64_t length; /* bytes; 0: it does not shrink */
    uint8_t *bytes;
};

struct request {
    struct image *image;
    enum request_kind kind;
    bool may_unmap;                        /* ZERO: host clusters may be given up */
    bool unmap_all;                        /* DISCARD: no entry stays, whatever shows through then: for what a new end cuts off */
    uint64_t guest_offset, length;         /* bytes */
    int level;                             /* PACK: the codec's; 0: its own */
    uint8_t *bytes;                        /* READ, WRITE, PACK: `length` of them */
    void *owner;                           /* for wake's use */
    void (*wake)(struct request *request); /* may be called from another thread, under the image's lock: only note it */

    struct error error; /* the result; code 0 = success */
    struct run run;     /* LOOKUP */
    bool covered;       /* REFCOUNT: a block covers the cluster */
    uint64_t value;     /* REFCOUNT, TAKE */
    struct moves moves; /* for REQUEST_MOVE */

    enum request_state state; /* from here on private to the guest storey */
    uint64_t done;            /* guest bytes */
    struct piece piece;
    struct reading reading;
    struct packed packed;
    struct want want;
    struct image *want_image; /* whose cache `want` is about */
    struct waiter waiter;
    struct inflight_entry entry;
    enum request_state after_table, after_flush;
    bool flushing; /* `round` is under way */
    bool flushed;  /* the flush that ends the request has been done */
    struct flush_round round;
    uint8_t note[8]; /* a field of the header, to write */
};

/* Makes the request ready to advance. */
void request_start(struct request *request, struct image *image, enum request_kind kind, uint64_t guest_offset, uint64_t length,
                   void *bytes);

/* Goes on as far as it can without I/O. */
enum request_step request_advance(struct request *request);

/* The moves ended: 0, or a negative errno with its sentence in request->error. */
void request_moved(struct request *request, int result);

/* Does it all in the caller's thread. Returns request->error.code. */
int request_run(struct request *request);

/* The same, with a failure's sentence in `error` (which stays as it was otherwise). Returns its code or 0. */
int request_run_into(struct request *request, struct error *error);

/* Runs a flush request in the caller's thread. */
int request_flush(struct image *image, struct error *error);

#endif
