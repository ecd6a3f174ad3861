/*
 * Contracts: the registry of (type, version), and raw bytes.
 *
 * Owns: which contracts stand, and the checks that they pass before.
 * Keeps: one contract a (type, version), one registration a descriptor; both hold against the type
 * and version as they were when registered, even if the descriptor is changed afterwards.
 * Must not know: handlers, transports, stores.
 */
#include "core/contract.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/message.h"
#include "core/type.h"

#define ORIGIN         "contract"
#define FLAGS_KNOWN    (PR_CONTRACT_RAW | PR_CONTRACT_REFUSE_UNKNOWN | PR_CONTRACT_UNROUTED_OK)
#define CAPACITY_FIRST 16

typedef struct contract_entry {
    const pr_contract *contract; /* NULL = free */
    char *type;                  /* as registered; owned */
    uint32_t version;
} contract_entry;

struct pr_contracts {
    contract_entry *entries; /* open addressing; at most half full */
    size_t capacity;         /* a power of two */
    size_t count;
};

struct pr_decoded {
    pr__arena *arena; /* this object lies in it as well */
    void *object;
};

const char *pr__contract_kind_text(pr_contract_kind kind)
{
    switch (kind) {
    case PR_CONTRACT_DOMAIN_EVENT:
        return "domain event";
    case PR_CONTRACT_INTEGRATION_EVENT:
        return "integration event";
    case PR_CONTRACT_COMMAND:
        return "command";
    case PR_CONTRACT_REPLY:
        return "reply";
    }
    return "unknown";
}

const char *pr__contract_content_type(const pr_contract *contract)
{
    if (contract->content_type)
        return contract->content_type;
    return contract->flags & PR_CONTRACT_RAW ? PR_CONTENT_TYPE_BYTES : PR_CONTENT_TYPE_JSON;
}

/* Bytes of the media type, without parameters and the spaces before them. */
static size_t media_size(const char *content_type)
{
    size_t size = strcspn(content_type, ";");
    while (size > 0 && content_type[size - 1] == ' ')
        size--;
    return size;
}

/* ASCII alone, in any locale. */
static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static bool same_letters(const char *a, const char *b, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (lower(a[i]) != lower(b[i]))
            return false;
    }
    return true;
}

bool pr__content_type_is_json(const char *content_type)
{
    size_t size = media_size(content_type);
    if (size < 5)
        return false;
    const char *end = content_type + size - 5;
    return same_letters(end, "/json", 5) || same_letters(end, "+json", 5);
}

static bool media_equal(const char *a, const char *b)
{
    size_t size = media_size(a);
    return size == media_size(b) && same_letters(a, b, size);
}

pr_status pr_contracts_new(pr_contracts **ret_contracts, pr_error *err)
{
    if (!ret_contracts)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_contracts is NULL");
    AUTO(pr_contracts) contracts = pr__alloc(sizeof(*contracts));
    if (!contracts)
        return pr__fail_nomem(err, ORIGIN);
    contracts->entries = pr__alloc_array(CAPACITY_FIRST, sizeof(*contracts->entries));
    if (!contracts->entries)
        return pr__fail_nomem(err, ORIGIN);
    contracts->capacity = CAPACITY_FIRST;
    *ret_contracts = TAKE(contracts);
    return PR_OK;
}

pr_contracts *pr_contracts_free(pr_contracts *contracts)
{
    if (!contracts)
        return NULL;
    for (size_t i = 0; i < contracts->capacity; i++)
        pr__free(contracts->entries[i].type);
    pr__free(contracts->entries);
    return pr__free(contracts);
}

/* The entry of (type, version), or the free one where it would go. */
static contract_entry *find_entry(contract_entry *entries, size_t capacity, const char *type,
                                  uint32_t version)
{
    uint64_t hash = pr__quick_hash(type, strlen(type), version);
    for (size_t i = (size_t)hash & (capacity - 1);; i = (i + 1) & (capacity - 1)) {
        contract_entry *entry = &entries[i];
        if (!entry->contract || (entry->version == version && strcmp(entry->type, type) == 0))
            return entry;
    }
}

static pr_status grow(pr_contracts *contracts, pr_error *err)
{
    if (contracts->count + 1 <= contracts->capacity / 2)
        return PR_OK;
    size_t capacity = contracts->capacity * 2;
    contract_entry *entries = pr__alloc_array(capacity, sizeof(*entries));
    if (!entries)
        return pr__fail_nomem(err, ORIGIN);
    for (size_t i = 0; i < contracts->capacity; i++) {
        const contract_entry *old = &contracts->entries[i];
        if (old->contract)
            *find_entry(entries, capacity, old->type, old->version) = *old;
    }
    pr__free(contracts->entries);
    contracts->entries = entries;
    contracts->capacity = capacity;
    return PR_OK;
}

static pr_status check_content_type(const pr_contract *contract, pr_error *err)
{
    const char *content_type = contract->content_type;
    if (!content_type)
        return PR_OK;
    /* the rules are the message's: a message with this content type must pass */
    const pr_message message = PR_MESSAGE(.type = contract->type, .content_type = content_type);
    TRY(pr_message_check(&message, 0, err));
    if (!(contract->flags & PR_CONTRACT_RAW) && !pr__content_type_is_json(content_type))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "content_type is '%s', but fields are written as JSON", content_type);
    return PR_OK;
}

/* What encode and decode rely on, too cheap to leave out there. */
static pr_status check_shape(const pr_contract *contract, pr_error *err)
{
    if (!contract || contract->size < sizeof(*contract))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract is NULL, or size is not sizeof(pr_contract)");
    if (!contract->type)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "contract has no type");
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    if (raw && (contract->fields || contract->object_size != 0))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract '%s' is raw bytes: it has no fields and no object_size",
                        contract->type);
    if (!raw && (!contract->fields || contract->object_size == 0))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract '%s' has no fields or no object_size, and is not raw bytes",
                        contract->type);
    return PR_OK;
}

static pr_status check_contract(const pr_contract *contract, pr_error *err)
{
    TRY(pr__type_check(contract->type, strlen(contract->type), NULL, err));
    TRY(pr__type_version_check(contract->type_version, err));
    if (contract->kind < PR_CONTRACT_DOMAIN_EVENT || contract->kind > PR_CONTRACT_REPLY)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "kind is none of domain event, integration event, command, reply");
    if (contract->flags & ~FLAGS_KNOWN)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "flags has unknown bits");
    if ((contract->flags & PR_CONTRACT_RAW) && (contract->flags & PR_CONTRACT_REFUSE_UNKNOWN))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "raw bytes have no fields that could be unknown");
    TRY(check_content_type(contract, err));
    if (contract->fields)
        TRY(pr__contract_table_check(contract, err));
    return PR_OK;
}

static pr_status check_duplicate(const pr_contracts *contracts, const pr_contract *contract,
                                 uint32_t version, pr_error *err)
{
    for (size_t i = 0; i < contracts->capacity; i++) {
        const contract_entry *entry = &contracts->entries[i];
        if (entry->contract == contract)
            return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                            "the descriptor of '%s' version %u is registered already, as '%s' "
                            "version %u",
                            contract->type, (unsigned)version, entry->type,
                            (unsigned)entry->version);
    }
    const contract_entry *entry =
        find_entry(contracts->entries, contracts->capacity, contract->type, version);
    if (entry->contract)
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "'%s' version %u (%s) is registered already, as '%s' version %u (%s): "
                        "give the new one another version",
                        contract->type, (unsigned)version, pr__contract_kind_text(contract->kind),
                        entry->type, (unsigned)entry->version,
                        pr__contract_kind_text(entry->contract->kind));
    return PR_OK;
}

pr_status pr_contracts_register(pr_contracts *contracts, const pr_contract *contract, pr_error *err)
{
    if (!contracts)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "contracts is NULL");
    TRY(check_shape(contract, err));
    uint32_t version = pr__type_version(contract->type_version);
    pr_error local = PR_ERROR_INIT;
    pr_status status = check_contract(contract, &local);
    if (status != PR_OK) {
        pr__error_context(&local, "contract '%.200s' version %u", contract->type,
                          (unsigned)version);
        pr__error_copy(err, &local);
        return status;
    }
    TRY(check_duplicate(contracts, contract, version, err));
    TRY(grow(contracts, err));
    char *type = pr__strdup(contract->type);
    if (!type)
        return pr__fail_nomem(err, ORIGIN);
    contract_entry *entry = find_entry(contracts->entries, contracts->capacity, type, version);
    *entry = (contract_entry){contract, type, version};
    contracts->count++;
    return PR_OK;
}

const pr_contract *pr_contracts_find(const pr_contracts *contracts, const char *type,
                                     uint32_t type_version)
{
    if (!contracts || !type)
        return NULL;
    return find_entry(contracts->entries, contracts->capacity, type, pr__type_version(type_version))
        ->contract;
}

static pr_status encode_raw(const pr_bytes *bytes, pr__buffer *out, pr_error *err)
{
    if (!bytes->data && bytes->size > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bytes are NULL with a size");
    pr__buffer_append(out, bytes->data, bytes->size);
    return PR_OK;
}

pr_status pr_contract_encode(const pr_contract *contract, const void *object, void **ret_body,
                             size_t *ret_size, pr_error *err)
{
    TRY(check_shape(contract, err));
    if (!object || !ret_body || !ret_size)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "object, ret_body or ret_size is NULL");
    AUTO_BUFFER body = PR_BUFFER_INIT;
    pr_error local = PR_ERROR_INIT;
    pr_status status = contract->flags & PR_CONTRACT_RAW
                           ? encode_raw(object, &body, &local)
                           : pr__contract_json_encode(contract->fields, object, &body, &local);
    if (status != PR_OK) {
        pr__error_context(&local, "'%.200s' version %u", contract->type,
                          (unsigned)pr__type_version(contract->type_version));
        pr__error_copy(err, &local);
        return status;
    }
    size_t size = body.size;
    char *taken = pr__buffer_take(&body);
    if (!taken)
        return pr__fail_nomem(err, ORIGIN);
    *ret_body = taken;
    *ret_size = size;
    return PR_OK;
}

static pr_status decode_raw(const pr_message *message, pr__arena *arena, pr_bytes *object,
                            pr_error *err)
{
    object->size = (size_t)message->body_size_bytes;
    object->data = pr__arena_memdup(arena, message->body, object->size);
    return object->data ? PR_OK : pr__fail_nomem(err, ORIGIN);
}

/* The message must be one of this contract's. */
static pr_status check_message(const pr_contract *contract, const pr_message *message,
                               pr_error *err)
{
    if (!message || message->size < sizeof(*message) || !message->type)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "message is NULL, or has no size or no type");
    if (!message->body && message->body_size_bytes > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "body is NULL, but body_size_bytes is %llu",
                        (unsigned long long)message->body_size_bytes);
    if (strcmp(message->type, contract->type) != 0 ||
        pr__type_version(message->type_version) != pr__type_version(contract->type_version))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "the message is '%.200s' version %u: not of this contract", message->type,
                        (unsigned)pr__type_version(message->type_version));
    const char *given = message->content_type ? message->content_type : PR_CONTENT_TYPE_JSON;
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    bool fits = raw ? !contract->content_type || media_equal(contract->content_type, given)
                    : pr__content_type_is_json(given);
    if (!fits)
        return pr__fail(err, PR_E_CONTENT, ORIGIN,
                        "the message has content type '%.255s', the contract '%s'", given,
                        pr__contract_content_type(contract));
    return PR_OK;
}

/* In an arena of its own, which the caller frees when this fails. */
static pr_status decode(const pr_contract *contract, const pr_message *message, pr__arena *arena,
                        pr_decoded **ret_decoded, pr_error *err)
{
    TRY(check_message(contract, message, err));
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    pr_decoded *decoded = pr__arena_alloc(arena, sizeof(*decoded));
    void *object = pr__arena_alloc(arena, raw ? sizeof(pr_bytes) : contract->object_size);
    if (!decoded || !object)
        return pr__fail_nomem(err, ORIGIN);
    if (raw)
        TRY(decode_raw(message, arena, object, err));
    else
        TRY(pr__contract_json_decode(contract, message, arena, object, err));
    decoded->arena = arena;
    decoded->object = object;
    *ret_decoded = decoded;
    return PR_OK;
}

pr_status pr_contract_decode(const pr_contract *contract, const pr_message *message,
                             pr_decoded **ret_decoded, pr_error *err)
{
    TRY(check_shape(contract, err));
    if (!ret_decoded)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_decoded is NULL");
    AUTO(pr__arena) arena = pr__arena_new(4096);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr_error local = PR_ERROR_INIT;
    pr_status status = decode(contract, message, arena, ret_decoded, &local);
    if (status != PR_OK) {
        pr__error_context(&local, "'%.200s' version %u", contract->type,
                          (unsigned)pr__type_version(contract->type_version));
        pr__error_copy(err, &local);
        return status;
    }
    arena = NULL; /* decoded's now */
    return PR_OK;
}

const void *pr_decoded_object(const pr_decoded *decoded)
{
    return decoded ? decoded->object : NULL;
}

pr_decoded *pr_decoded_free(pr_decoded *decoded)
{
    if (decoded)
        pr__arena_free(decoded->arena);
    return NULL;
}

void *pr_free(void *memory)
{
    return pr__free(memory);
}
