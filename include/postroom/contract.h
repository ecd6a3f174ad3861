/*
 * Contracts: the registry of (type, version) and how each is encoded and decoded.
 *
 * A contract is described by a table of fields over a C struct (JSON), is written by codecs of the
 * application's own, or is raw bytes.
 */
#ifndef POSTROOM_CONTRACT_H
#define POSTROOM_CONTRACT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <postroom/message.h>

typedef struct pr_contracts pr_contracts;
typedef struct pr_contract pr_contract;
typedef struct pr_decoded pr_decoded;

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
    PR_FIELD_LIST,     /* pr_list of elements */
    PR_FIELD_ENUM,     /* int, or a C enum; one of its names in JSON */
    PR_FIELD_OTHERS    /* const char *, a JSON object of what the table does not name, or NULL */
} pr_field_kind;

typedef struct pr_bytes {
    const void *data;
    size_t size;
} pr_bytes;

typedef struct pr_list {
    void *items; /* count elements of element_size, in order */
    size_t count;
} pr_list;

typedef struct pr_enum_name {
    const char *name; /* in JSON; NULL ends the list */
    int64_t value;    /* of the int */
} pr_enum_name;

#define PR_FIELD_OPTIONAL    0x1u /* may be missing or null; presence_offset: a bool of its own */
#define PR_FIELD_MESSAGE_ID  0x2u /* a UUID, the message's id again: must equal the envelope's */
#define PR_FIELD_OCCURRED_AT 0x4u /* an INSTANT, the occurrence time again: as the envelope's */

typedef struct pr_field {
    const char *name; /* in JSON; NULL ends the table; of OTHERS, only for you */
    pr_field_kind kind;
    pr_field_kind element_kind;    /* of a LIST; 0 otherwise */
    uint32_t flags;                /* PR_FIELD_… */
    size_t offset;                 /* of the field in its struct */
    size_t presence_offset;        /* of a bool, for OPTIONAL */
    size_t element_size;           /* sizeof a NESTED struct, or of a LIST's element */
    const struct pr_field *nested; /* table of a NESTED field or of a LIST of NESTED */
    const pr_enum_name *names;     /* of an ENUM or of a LIST of ENUM */
    const void *default_value;     /* taken when the field is missing: points to a value of its C
                                      type, whose content decoded objects share; NULL = required */
    size_t size_max;               /* bytes of TEXT and BYTES, elements of a LIST; 0 = any */
    const char *description;       /* for the schema; may be NULL */
} pr_field;

/* An application's own way to write a contract's object, for one content type. */
typedef struct pr_codec {
    uint32_t size; /* sizeof(pr_codec) */
    uint32_t reserved;
    const char *content_type;
    void *user; /* given to both functions, as it is */
    /* Write the object. *ret_body comes from pr_alloc and is then the library's. Called from any
       thread, again after a failure; fills err with pr_error_set. */
    pr_status (*encode)(void *user, const pr_contract *contract, const void *object,
                        void **ret_body, size_t *ret_size, pr_error *err);
    /* Fill the object: zeroed, of the contract's object_size. What it points to comes from
       pr_decoded_alloc; the message is borrowed for the call. Fails with CONTENT for a bad body,
       without showing it. */
    pr_status (*decode)(void *user, const pr_contract *contract, const pr_message *message,
                        pr_decoded *decoded, void *object, pr_error *err);
} pr_codec;

#define PR_CONTRACT_RAW            0x1u /* the body is bytes as they are; no table */
#define PR_CONTRACT_REFUSE_UNKNOWN 0x2u /* what a table does not name is an error, if no OTHERS */
#define PR_CONTRACT_UNROUTED_OK    0x4u /* published although nobody subscribes */

struct pr_contract {
    uint32_t size;         /* sizeof(pr_contract) */
    uint32_t type_version; /* schema version >= 1; 0 = 1 */
    const char *type;      /* URN */
    pr_contract_kind kind;
    uint32_t flags;           /* PR_CONTRACT_… */
    const char *content_type; /* written; NULL = JSON with fields, bytes when RAW, else the first
                                 codec's */
    const pr_field *fields;   /* NULL when RAW, or written by codecs alone */
    size_t object_size;       /* sizeof the C struct; 0 when RAW */
    const pr_codec *const *codecs; /* one a content type; NULL ends the list; NULL = none */
};

/* clang-format off */
#define PR_CONTRACT(...) {.size = (uint32_t)sizeof(pr_contract), __VA_ARGS__}
/* clang-format on */

/* Makes the object of the next version, zeroed before, out of that of a version. What it points to
   may be from's, or comes from pr_decoded_alloc. */
typedef pr_status (*pr_upcast)(void *user, const void *from, void *to, pr_decoded *decoded,
                               pr_error *err);

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
 * Say how an object of (type, from_version) becomes one of the next version, so that handlers see
 * the newest only. Steps chain: 1 to 2 and 2 to 3 make 1 to 3.
 *
 * Owner   user is borrowed for the life of the registry.
 * Errors  INVALID: one of the two versions is not registered, or step is NULL. CONFLICT: it has a
 *         step already. NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contracts_upcast(pr_contracts *contracts, const char *type,
                                                   uint32_t from_version, pr_upcast step,
                                                   void *user, pr_error *err);

/**
 * Decode a message by the contract of its type and version, then take every step up that is
 * registered from there. Endpoints do this.
 *
 * Owner   as pr_contract_decode.
 * Errors  NOT_FOUND: no contract of (type, version). Else as pr_contract_decode, and what a step
 *         said; CONTENT: a step left a field that cannot be.
 * Thread  any, while nobody registers.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contracts_decode(const pr_contracts *contracts,
                                                   const pr_message *message,
                                                   pr_decoded **ret_decoded, pr_error *err);

/**
 * Encode an object, the contract's C struct or a pr_bytes for a RAW one, as the body of a message
 * of the contract's content type. Optional fields that are not present are left out.
 *
 * Owner   *ret_body is the caller's: pr_free().
 * Errors  CONTENT, LIMIT: a field that cannot be written; the message names it. INVALID, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_encode(const pr_contract *contract, const void *object,
                                                  void **ret_body, size_t *ret_size, pr_error *err);

/**
 * As pr_contract_encode, in another content type that the contract has: JSON if it has fields, or
 * one of its codecs'.
 *
 * Owner   *ret_body is the caller's: pr_free().
 * Errors  UNSUPPORTED: the contract does not have it. Else as pr_contract_encode.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_encode_as(const pr_contract *contract,
                                                     const char *content_type, const void *object,
                                                     void **ret_body, size_t *ret_size,
                                                     pr_error *err);

/**
 * The content type in which pr_contract_encode writes.
 *
 * Owner   the contract's, or a constant; NULL for NULL.
 * Since   0.1
 */
PR_API const char *pr_contract_content_type(const pr_contract *contract);

/**
 * Decode a message's body by its contract and content type. Members that the table does not name
 * are kept by an OTHERS field, or else ignored, unless the contract says REFUSE_UNKNOWN.
 *
 * Owner   *ret_decoded is the caller's: pr_decoded_free(); the message is borrowed for the call.
 * Errors  CONTENT: bad JSON, another content type, a missing or wrong field, an id or time that
 *         differs from the envelope's; names the field and the byte, never the content. LIMIT: more
 *         than size_max, or an object of more than PR_DECODED_SIZE_MAX. INVALID: the message is
 *         of another type or version. NOMEM.
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
 * The contract of the decoded object: of a later version than the message's when it was up-cast.
 *
 * Owner   the registrar's.
 * Since   0.1
 */
PR_API const pr_contract *pr_decoded_contract(const pr_decoded *decoded);

/**
 * Zeroed memory that lives as long as the decoded object; for codecs and steps up.
 *
 * Owner   decoded's. NULL when out of memory.
 * Since   0.1
 */
PR_API void *pr_decoded_alloc(pr_decoded *decoded, size_t size);

/**
 * Free a decoded object.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API pr_decoded *pr_decoded_free(pr_decoded *decoded);

/**
 * A JSON Schema (draft 2020-12) of the bodies that the contract takes, out of its table.
 *
 * Shape   one line of JSON text.
 * Owner   *ret_schema is the caller's: pr_free().
 * Errors  UNSUPPORTED: the contract has no fields. INVALID, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_schema(const pr_contract *contract, char **ret_schema,
                                                  pr_error *err);

/**
 * A body that the contract takes and the schema allows, out of the same table: every field is
 * there, lists have one element.
 *
 * Shape   one line of JSON text.
 * Owner   *ret_example is the caller's: pr_free().
 * Errors  UNSUPPORTED: the contract has no fields. INVALID, NOMEM.
 * Since   0.1
 */
PR_API PR_MUST_CHECK pr_status pr_contract_example(const pr_contract *contract, char **ret_example,
                                                   pr_error *err);

/**
 * Zeroed memory for what the library will free: a codec's body.
 *
 * Owner   the caller's until given away; pr_free() frees it. NULL when out of memory.
 * Since   0.1
 */
PR_API void *pr_alloc(size_t size);

/**
 * Free memory that the library gave to the caller, or that pr_alloc gave.
 *
 * Owner   accepts NULL; returns NULL.
 * Since   0.1
 */
PR_API void *pr_free(void *memory);

PR_END_DECLS

#endif
