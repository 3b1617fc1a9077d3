/* SPDX-License-Identifier: MIT
 *
 * Leads the three rooms. A repair is believed only when a second look, from the disk, finds nothing: the dirty and corrupt bits are cleared
 * after that and not before. The flags are judged after the refcounts have been mended, since they depend on them.
 * Called by open (for images marked dirty) and by the binding.
 */
#include "image/checkup.h"

#include <string.h>

#include "base/bytes.h"
#include "image/check.h"
#include "image/head.h"
#include "image/repair.h"

/* The findings that the first census had of what is mended now go before those of the next one. */
static int mend_zeroes(struct census *census, const struct checkup_options *options, struct error *error) {
    struct findings kept = {.most = options->max_findings};
    int result = repair_zeroes(census, error);
    if (result < 0) return result;
    for (uint64_t i = 0; i < census->findings.count; i++) {
        const struct finding *finding = &census->findings.items[i];
        if (finding->repaired) findings_add(&kept, *finding, "%s", finding->text);
    }
    kept.corruptions_fixed = census->findings.corruptions_fixed;
    struct file *file = file_share(census->file);
    census_end(census);
    result = census_take(census, file, options->max_findings, options->memory_limit, error);
    file_release(file);
    for (uint64_t i = 0; i < census->findings.count; i++) {
        const struct finding *finding = &census->findings.items[i];
        struct finding *copy = findings_add(&kept, *finding, "%s", finding->text);
        if (copy != NULL) copy->repaired = finding->repaired;
    }
    kept.unlisted += census->findings.unlisted;
    kept.corruptions = kept.corruptions_fixed + census->findings.corruptions;
    kept.leaks = census->findings.leaks;
    kept.check_errors = census->findings.check_errors;
    findings_clear(&census->findings);
    census->findings = kept;
    return result;
}

static bool counts_differ(const struct census *census) {
    const struct findings *findings = &census->findings;
    return findings->leaks > 0 || findings->corruptions > findings->corruptions_fixed || findings->check_errors > 0;
}

static int mend_counts(struct census *census, struct checkup *checkup, enum checkup_repair repair, struct error *error) {
    if (!counts_differ(census)) return 0;
    if (repair == CHECKUP_FIX_LEAKS && (census->structure_damaged || census->counts_lost)) {
        checkup->rebuild_needed = true;
        return 0;
    }
    return repair_refcounts(census, repair == CHECKUP_FIX_ALL, true, error);
}

/* One look, with the repairs that are asked for. */
static int look(struct census *census, struct checkup *checkup, const struct checkup_options *options, enum checkup_repair repair,
                struct error *error) {
    int result = census_take(census, checkup->file, options->max_findings, options->memory_limit, error);
    if (result == 0 && repair == CHECKUP_FIX_ALL && census->zeroes_unaligned > 0) result = mend_zeroes(census, options, error);
    if (result == 0) result = check_refcounts(census);
    if (result == 0 && repair != CHECKUP_LOOK) result = mend_counts(census, checkup, repair, error);
    if (result < 0) return result;
    const uint64_t before = census->findings.corruptions;
    check_copied(census);
    const bool wrong = census->findings.corruptions > before;
    return wrong && repair != CHECKUP_LOOK && !checkup->rebuild_needed ? repair_copied(census, error) : 0;
}

static void take_numbers(struct checkup *checkup, const struct census *census) {
    checkup->image_end_offset = geometry_offset(&census->geometry, max_u64(census->end, 1));
    checkup->total_clusters = geometry_clusters_for(&census->geometry, census->header.size);
    checkup->allocated_clusters = census->allocated;
    checkup->fragmented_clusters = census->fragmented;
    checkup->compressed_clusters = census->compressed;
    checkup->check_errors = census->findings.check_errors;
    checkup->corruptions = census->findings.corruptions;
    checkup->leaks = census->findings.leaks;
}

/* Takes the findings out of a census that is about to end. */
static void take_findings(struct findings *findings, struct census *census) {
    *findings = census->findings;
    census->findings = (struct findings){.count = 0};
}

static int clear_marks(const struct checkup *checkup, struct census *census, struct error *error) {
    if (checkup->corruptions > 0 || checkup->check_errors > 0) return 0;
    return head_clear_incompatible(census->file, &census->header, FORMAT_INCOMPATIBLE_DIRTY | FORMAT_INCOMPATIBLE_CORRUPT, error);
}

int checkup_run(struct checkup *checkup, struct file *file, const struct checkup_options *options, struct error *error) {
    struct census census;
    *checkup = (struct checkup){.file = file};
    int result = look(&census, checkup, options, options->repair, error);
    take_numbers(checkup, &census);
    take_findings(&checkup->findings, &census);
    checkup->looked_twice = checkup->findings.corruptions_fixed + checkup->findings.leaks_fixed > 0;
    if (result == 0 && checkup->looked_twice) {
        census_end(&census);
        result = look(&census, checkup, options, CHECKUP_LOOK, error);
        take_numbers(checkup, &census);
        take_findings(&checkup->left, &census);
    }
    if (result == 0 && options->repair != CHECKUP_LOOK) result = clear_marks(checkup, &census, error);
    census_end(&census);
    return result;
}

void checkup_end(struct checkup *checkup) {
    findings_clear(&checkup->findings);
    findings_clear(&checkup->left);
}
