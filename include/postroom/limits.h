/*
 * Limits and defaults. Sizes are bytes; every limit is checked with an error that names it.
 *
 * Source: docs/design/message.md.
 */
#ifndef POSTROOM_LIMITS_H
#define POSTROOM_LIMITS_H

#define PR_BODY_SIZE_DEFAULT           (1024LL * 1024)       /* unless the store sets another */
#define PR_BODY_SIZE_MAX               (64LL * 1024 * 1024)  /* highest that can be set */
#define PR_DECODED_SIZE_MAX            (256LL * 1024 * 1024) /* memory of one decoded object */
#define PR_ID_SIZE_MAX                 255 /* id of others, key, correlation, tenant, endpoint */
#define PR_TYPE_SIZE_MAX               200
#define PR_CONTENT_TYPE_SIZE_MAX       255
#define PR_DESTINATION_SIZE_MAX        512
#define PR_SOURCE_SIZE_MAX             255
#define PR_TRACEPARENT_SIZE_MAX        128
#define PR_TRACESTATE_SIZE_MAX         512
#define PR_HEADER_SIZE_MAX             4096  /* one header: name and value as JSON text */
#define PR_HEADER_NAME_SIZE_MAX        255   /* name of one header: a short string of AMQP */
#define PR_HEADERS_SIZE_MAX            32768 /* all headers as JSON text */
#define PR_ERROR_TEXT_SIZE_MAX         4000  /* error text kept with a message */
#define PR_NAME_SIZE_MAX               63    /* table and schema names with the longest suffix */

#define PR_LANES_DEFAULT               16
#define PR_LANES_MAX                   256
#define PR_BATCH_DEFAULT               500
#define PR_BATCH_BYTES_DEFAULT         (8LL * 1024 * 1024)
#define PR_LEASE_MS_DEFAULT            30000
#define PR_POLL_BUSY_MS_DEFAULT        5
#define PR_POLL_IDLE_MS_DEFAULT        50
#define PR_CONFIRM_WINDOW_DEFAULT      256
#define PR_PUBLISH_DEADLINE_MS_DEFAULT 10000
#define PR_RETRY_MAX_DEFAULT           10 /* N retries are N + 1 attempts */
#define PR_BACKOFF_INITIAL_MS_DEFAULT  5000
#define PR_BACKOFF_MAX_MS_DEFAULT      (15LL * 60 * 1000)
#define PR_CONCURRENCY_DEFAULT         4
#define PR_PREFETCH_DEFAULT            32

#endif
