/* SPDX-License-Identifier: MIT
 *
 * What request.c and the plans of the guest storey say to each other. Every plan is called under the image's lock,
 * may be called again from the start, and takes nothing unless it returns PLAN_MOVE or PLAN_EDGES.
 */
#ifndef QCOW2_GUEST_PIECES_H
#define QCOW2_GUEST_PIECES_H

#include "guest/request.h"

enum plan {
    PLAN_MOVE,   /* a piece is under way; its moves are filled (perhaps none), and link comes after them */
    PLAN_EDGES,  /* a piece is under way; its edges have to be read before its moves */
    PLAN_GO_ON,  /* some of the request was done by table work alone; plan again */
    PLAN_DONE,   /* nothing is left to do */
    PLAN_WANT,   /* see request->want, then plan again */
    PLAN_FAILED, /* see request->error */
};

enum go {
    GO_ON,
    GO_MOVE,
    GO_PARKED,
    GO_DONE
}; /* what a state's function says to request_advance */

/* Sets what the request waits for, in its own image. Returns PLAN_WANT. */
enum plan plan_wait(struct request *request, struct waiters *waiters);

/* read.c: the next moves of `reading`, taking locks itself. PLAN_MOVE, PLAN_DONE, PLAN_WANT (of request->want_image) or PLAN_FAILED. */
enum plan read_next(struct request *request, struct reading *reading);

/* unpack.c: the run of a compressed cluster: PLAN_DONE (it was at hand), PLAN_MOVE (its packed bytes are to be read, then unpack_end) or
 * PLAN_FAILED. unpack_drop: nothing comes of it. */
enum plan unpack_begin(struct request *request, struct reading *reading, struct image *level, const struct run *run);
int unpack_end(struct request *request, struct reading *reading);
void unpack_drop(struct reading *reading);

/* prepare.c: what has to be there before clusters can be taken or entries set. */
enum plan plan_table(struct request *request, uint64_t guest_offset);
enum plan plan_clusters(struct request *request, uint64_t count, bool exact, struct alloc_found *found);
enum plan plan_cover_with(struct request *request, uint64_t host_cluster, uint64_t extra);
int link_prepared(struct request *request, int result);

/* write.c: WRITE and ALLOCATE from guest_offset on, at most `length` bytes; `bytes` NULL: zeroes, or nothing at all. */
enum plan plan_write(struct request *request, uint64_t guest_offset, uint64_t length, const uint8_t *bytes);
int link_data(struct request *request, int result);

/* The slice that maps guest_offset, in a table that is ours alone (PLAN_DONE), or what comes before it. */
enum plan plan_slice(struct request *request, uint64_t guest_offset, struct slot **slot);

/* pack.c: packs the next guest cluster, without the lock, and gives up what was packed; then plan and link of PACK; the clusters given have
 * lost a reference. */
int pack_next(struct request *request);
void pack_end(struct request *request);
enum plan plan_pack(struct request *request, uint64_t guest_offset, uint64_t length);
int link_packed(struct request *request, int result);
void packing_forget(struct image *image, uint64_t host_cluster, uint64_t count);

/* Gives up the references that an entry holds. */
int drop_cluster(struct image *image, const struct cluster *cluster, uint64_t dropped_at);

/* edges.c: whether a write leaves the cluster where it is; the piece's span and edges for the guest's `length` bytes at guest_offset (in
 * piece->count clusters from piece->guest_offset on); the entry that one of its clusters gets. */
bool keeps_cluster(const struct image *image, const struct cluster *cluster);
void edges_measure(struct request *request, const struct slot *slot, uint64_t guest_offset, uint64_t length);
struct cluster edges_linked(const struct request *request, const struct cluster *old, uint64_t cluster_start);

/* cow.c: whether edges have to be read; the reading for the next of them; the moves of the piece, edges and guest bytes. */
bool cow_begin(struct request *request);
bool cow_next_edge(struct request *request);
void cow_moves(struct request *request);

/* resize.c: RESIZE; and its end when the new L1 table's clusters came with a cover. */
enum plan plan_resize(struct request *request);
int link_l1(struct request *request);

/* references.c: TAKE and REFER; the end of TAKE when its clusters came with a cover. */
enum plan plan_take(struct request *request);
enum plan plan_refer(struct request *request);
void link_taken(struct request *request);

/* lookup.c: LOOKUP and REFCOUNT. raw.c: everything on a raw image, but reads and look-ups; takes no lock. */
enum plan plan_lookup(struct request *request);
enum plan plan_refcount(struct request *request);
enum plan plan_raw(struct request *request);

/* flushing.c: the state FLUSH; takes the lock itself. */
enum go advance_flush(struct request *request);
void flush_moves_ended(struct request *request, int result);

/* clear.c: ZERO and DISCARD; the end of a piece that cleared the external data file first. */
enum plan plan_clear(struct request *request);
int link_clear(struct request *request, int result);

/* subclusters.c: the same for whole subclusters of one cluster. */
enum plan clear_subclusters(struct request *request, uint64_t guest_offset, uint64_t length, bool give_up);

#endif
