/*
 * The subject of an audit row: whom or what a command of an operator concerned, as JSON.
 */
#ifndef PR_PORT_AUDIT_H
#define PR_PORT_AUDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* What the audit says of a command, and whom it concerns. */
typedef struct pr__audit_subject {
    const char *message_id; /* NULL = by filter */
    const char *consumer;
    const char *box;
    const char *type;
    const char *destination;
    int64_t log_id; /* of a discarded row of the log; 0 = none */
    bool forced;
    const char *saga_type; /* of a saga: with its key, and its tenant unless it has none */
    const char *key;
    const char *tenant;
} pr__audit_subject;

/* Append it; buffer->failed when out of memory. */
void pr__audit_subject_write(const pr__audit_subject *subject, pr__buffer *buffer);

#endif
