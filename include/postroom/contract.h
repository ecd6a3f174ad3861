/*
 * Contracts: the registry of (type, version) and how each is encoded and decoded.
 *
 * A contract is described by a table of fields over a C struct (JSON), or is raw bytes.
 */
#ifndef POSTROOM_CONTRACT_H
#define POSTROOM_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/message.h>

typedef struct pr_contracts pr_contracts;

typedef enum pr_contract_kind {
    PR_CONTRACT_DOMAIN_EVENT = 1,
    PR_CONTRACT_INTEGRATION_EVENT,
    PR_CONTRACT_COMMAND,
    PR_CONTRACT_REPLY
} pr_contract_kind;

/* How a field lies in the C struct. */
typedef enum pr_field_kind {
    PR_FIELD_TEXT = 1, /* const char * */
    PR_FIELD_BYTES,    /* pr_bytes; base64 in JSON */
    PR_FIELD_INT64,    /* int64_t */
    PR_FIELD_DOUBLE,   /* double, finite */
    PR_FIELD_BOOL,     /* bool */
    PR_FIELD_UUID,     /* char[37] */
    PR_FIELD_INSTANT,  /* int64_t, microseconds since 1970; RFC 3339 in JSON */
    PR_FIELD_NESTED,   /* a struct of its own table, in place */
    PR_FIELD_LIST      /* pr_list of elements */
} pr_field_kind;

typedef struct pr_bytes {
    const void *data;
    size_t size;
} pr_bytes;

typedef struct pr_list {
    void *items; /* count elements of element_size, in order */
    size_t count;
} pr_list;

#define PR_FIELD_OPTIONAL    0x1u /* may be missing or null; presence_offset: a bool of its own */
#define PR_FIELD_MESSAGE_ID  0x2u /* a UUID, the message's id again: must equal the envelope's */
#define PR_FIELD_OCCURRED_AT 0x4u /* an INSTANT, the occurrence time again: as the envelope's */

typedef struct pr_field {
    const char *name; /* in JSON; NULL ends the table */
    pr_field_kind kind;
    pr_field_kind element_kind;    /* of a LIST; 0 otherwise */
    uint32_t flags;                /* PR_FIELD_… */
    size_t offset;                 /* of the field in its struct */
    size_t presence_offset;        /* of a bool, for OPTIONAL */
    size_t element_size;           /* sizeof a NESTED struct, or of a LIST's element */
    const struct pr_field *nested; /* table of a NESTED field or of a LIST of NESTED */
} pr_field;

#define PR_CONTRACT_RAW            0x1u /* the body is bytes as they are; no table */
#define PR_CONTRACT_REFUSE_UNKNOWN 0x2u /* a field that the table does not name is an error */
#define PR_CONTRACT_UNROUTED_OK    0x4u /* published although nobody subscribes */

typedef struct pr_contract {
    uint32_t size; /* sizeof(pr_contract) */
    uint32_t type_version;
    const char *type;
    pr_contract_kind kind;
    uint32_t flags;           /* PR_CONTRACT_… */
    const char *content_type; /* NULL = application/json, or application/octet-stream when RAW */
    const pr_field *fields;   /* NULL when RAW */
    size_t object_size;       /* sizeof the C struct; 0 when RAW */
} pr_contract;

typedef struct pr_decoded pr_decoded;

PR_BEGIN_DECLS

/**
 * An empty registry.
 *
 * Owner   *ret_contracts is the caller's: pr_contracts_free().
 * Errors  NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contracts_new(pr_contracts **ret_contracts, pr_error *err);

/**
 * Free a registry.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_contracts *pr_contracts_free(pr_contracts *contracts);

/**
 * Register a contract. Not while another thread uses the registry. Type version 0 means 1.
 *
 * Owner   contract and its tables are borrowed for the life of the registry.
 * Errors  CONFLICT: (type, version) or this very descriptor stands already; both are named.
 *         INVALID: the table, its kinds and places, flags. CONTENT: a malformed type, a name
 *         that is not UTF-8. LIMIT: a type too long for a routing key.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contracts_register(pr_contracts *contracts,
                                                     const pr_contract *contract, pr_error *err);

/**
 * The contract of (type, version), or NULL. Version 0 means 1.
 *
 * Owner   the registrar's.
 * Thread  any, while nobody registers.
 * Since   0.1
 */
PR_API const pr_contract *pr_contracts_find(const pr_contracts *contracts, const char *type,
                                            uint32_t type_version);

/**
 * Encode an object, the contract's C struct or a pr_bytes for a RAW one, as the body of a message.
 * Optional fields that are not present are left out.
 *
 * Owner   *ret_body is the caller's: pr_free().
 * Errors  CONTENT: a field that cannot be written; the message names it. INVALID, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_encode(const pr_contract *contract, const void *object,
                                                  void **ret_body, size_t *ret_size, pr_error *err);

/**
 * Decode a message's body by its contract. Fields that the table does not name are ignored, unless
 * the contract says REFUSE_UNKNOWN.
 *
 * Owner   *ret_decoded is the caller's: pr_decoded_free(); the message is borrowed for the call.
 * Errors  CONTENT: bad JSON, another content type, a missing or wrong field, an id or time that
 *         differs from the envelope's; names the field, or the byte where the JSON is bad, never
 *         the content. INVALID: the message is of another type or version. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_decode(const pr_contract *contract,
                                                  const pr_message *message,
                                                  pr_decoded **ret_decoded, pr_error *err);

/**
 * The decoded object: the contract's C struct; for a RAW contract a pr_bytes.
 *
 * Owner   decoded's; valid until pr_decoded_free().
 * Since   0.1
 */
PR_API const void *pr_decoded_object(const pr_decoded *decoded);

/**
 * Free a decoded object.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_decoded *pr_decoded_free(pr_decoded *decoded);

/**
 * Free memory that the library gave to the caller.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API void *pr_free(void *memory);

PR_END_DECLS

#endif
