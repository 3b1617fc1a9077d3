/* SPDX-License-Identifier: MIT
 *
 * Private to header.c and header_extensions.c: the list of header extensions as bytes.
 */
#ifndef QCOW2_FORMAT_HEADER_EXTENSIONS_H
#define QCOW2_FORMAT_HEADER_EXTENSIONS_H

#include <stddef.h>
#include <stdint.h>

#include "format/header.h"

/* Reads the list that begins at header_length and goes no further than `end`, from the `length` bytes that exist. */
int header_read_extensions(struct header *header, const uint8_t *bytes, uint64_t length, uint64_t end, struct error *error);

/* Bytes that the list takes, its end marker included. */
uint64_t header_extensions_size(const struct header *header);

/* Writes header_extensions_size bytes. */
void header_write_extensions(const struct header *header, uint8_t *bytes);

/* Gives the list's memory back; it is empty then. */
void header_clear_extensions(struct header *header);

#endif
