/*
 * Contracts inside of core: the checks of a table, and the codec behind the public calls.
 */
#ifndef PR_CORE_CONTRACT_H
#define PR_CORE_CONTRACT_H

#include <postroom/contract.h>

#include "base/buffer.h"
#include "base/json_writer.h"
#include "base/memory.h"

#define PR_CONTENT_TYPE_BYTES "application/octet-stream"
#define PR_FIELDS_MAX         256 /* of one table */

DEFINE_AUTO(pr_contracts, pr_contracts_free);
DEFINE_AUTO(pr_decoded, pr_decoded_free);

struct pr_decoded {
    pr__arena *arena; /* this object lies in it as well */
    void *object;
    const pr_contract *contract; /* the object's */
};

/* The contract that pr_contracts_decode ends at for a message of (type, version); NULL: none. */
const pr_contract *pr__contracts_reached(const pr_contracts *contracts, const char *type,
                                         uint32_t type_version);

/* "domain event", "integration event", "command", "reply"; "unknown" for a value that is none. */
const char *pr__contract_kind_text(pr_contract_kind kind);

/* The headers that a message has by its contract; NULL: none. */
const char *pr__contract_headers(const pr_contract *contract);

/* What encode and decode rely on, too cheap to leave out there. INVALID. */
pr_status pr__contract_check_shape(const pr_contract *contract, pr_error *err);

/* All of a contract that is to be registered: type, flags, content types, codecs, table. */
pr_status pr__contract_check(const pr_contract *contract, pr_error *err);

/* Whether an object could be encoded as it is, for contracts with fields or of raw bytes. */
pr_status pr__contract_check_object(const pr_contract *contract, const void *object, pr_error *err);

/* Bytes that a field takes in its struct; of one element of a list. 0 for a kind that is none. */
size_t pr__field_size(const pr_field *field);
size_t pr__field_element_size(const pr_field *field);

/* Whether a table names a member: OTHERS names none. */
bool pr__fields_name(const pr_field *fields, const char *name);

/* Check the table of a contract: names, kinds, places. INVALID, CONTENT, LIMIT. */
pr_status pr__contract_table_check(const pr_contract *contract, pr_error *err);

/* The JSON codec over a checked table. Errors name the path of the field, never its content. */
pr_status pr__contract_json_encode(const pr_field *fields, const void *object, pr__buffer *out,
                                   pr_error *err);
pr_status pr__contract_json_decode(const pr_contract *contract, const pr_message *message,
                                   pr__arena *arena, void *object, pr_error *err);

/* Write one value, at `at`, of a field's kind. */
pr_status pr__contract_json_value(pr__json *json, const pr_field *field, const void *at,
                                  pr_error *err);

#endif
