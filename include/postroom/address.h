/*
 * Addresses: `<transport>://topic/<urn>`, `<transport>://in/<endpoint-id>`,
 * `<transport>://in/<urn>/<endpoint-id>` (the same endpoint, for that type),
 * `<transport>://reply/<id>`.
 */
#ifndef POSTROOM_ADDRESS_H
#define POSTROOM_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

#include <postroom/error.h>

typedef enum pr_address_kind {
    PR_ADDRESS_TOPIC = 1,
    PR_ADDRESS_IN,
    PR_ADDRESS_REPLY
} pr_address_kind;

/* The reserved transport of rows that subscriptions of this store read where they are. */
#define PR_TRANSPORT_LOCAL "local"

typedef struct pr_address {
    uint32_t size;
    pr_address_kind kind;
    char transport[32]; /* [a-z][a-z0-9+.-]* */
    char type[256];     /* the URN of a topic, or of an `in` for one type; else "" */
    char endpoint[256]; /* the endpoint id or the reply id; else "" */
} pr_address;

PR_BEGIN_DECLS

/**
 * Read an address.
 *
 * Owner   text is borrowed; *ret_address is the caller's memory.
 * Errors  CONTENT: malformed; the message names the part. LIMIT: a part is too long.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_address_parse(const char *text, pr_address *ret_address,
                                                pr_error *err);

/**
 * Write an address as text into out[out_size]; parse and print are a round trip.
 *
 * Owner   out is the caller's memory; 512 bytes always suffice.
 * Errors  INVALID: kind or a part is missing. LIMIT: out is too small.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_address_print(const pr_address *address, char *out,
                                                size_t out_size, pr_error *err);

PR_END_DECLS

#endif
