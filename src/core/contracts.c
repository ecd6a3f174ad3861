/*
 * Contracts: the registry of (type, version), and the steps from one version up to the next.
 *
 * Owns: which contracts stand, and how an old message becomes an object of the newest version.
 * Keeps: one contract a (type, version), one registration a descriptor; both hold against the type
 * and version as they were when registered, even if the descriptor is changed afterwards.
 * Must not know: handlers, transports, stores, how a body is written.
 */
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/hash.h"
#include "core/contract.h"
#include "core/type.h"

#define ORIGIN         "contract"
#define CAPACITY_FIRST 16

typedef struct contract_entry {
    const pr_contract *contract; /* NULL = free */
    char *type;                  /* as registered; owned */
    uint32_t version;
    pr_upcast step; /* to the next version; NULL = none */
    void *step_user;
} contract_entry;

struct pr_contracts {
    contract_entry *entries; /* open addressing; at most half full */
    size_t capacity;         /* a power of two */
    size_t count;
};

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
    TRY(pr__contract_check_shape(contract, err));
    uint32_t version = pr__type_version(contract->type_version);
    pr_error local = PR_ERROR_INIT;
    pr_status status = pr__contract_check(contract, &local);
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
    *entry = (contract_entry){.contract = contract, .type = type, .version = version};
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

/* ---- up-casting ---- */

/* The entry that stands, or NULL. */
static contract_entry *entry_of(const pr_contracts *contracts, const char *type, uint32_t version)
{
    contract_entry *entry = find_entry(contracts->entries, contracts->capacity, type, version);
    return entry->contract ? entry : NULL;
}

pr_status pr_contracts_upcast(pr_contracts *contracts, const char *type, uint32_t from_version,
                              pr_upcast step, void *user, pr_error *err)
{
    uint32_t version = pr__type_version(from_version);
    if (!contracts || !type || !step)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "contracts, type or step is NULL");
    contract_entry *entry = entry_of(contracts, type, version);
    if (!entry || !entry_of(contracts, type, version + 1))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "'%.200s' version %u is not registered: register both versions before the "
                        "step from %u to %u",
                        type, (unsigned)(entry ? version + 1 : version), (unsigned)version,
                        (unsigned)version + 1);
    if (entry->step)
        return pr__fail(err, PR_E_CONFLICT, ORIGIN,
                        "'%.200s' has a step from version %u to %u already", type,
                        (unsigned)version, (unsigned)version + 1);
    entry->step = step;
    entry->step_user = user;
    return PR_OK;
}

const pr_contract *pr__contracts_reached(const pr_contracts *contracts, const char *type,
                                         uint32_t type_version)
{
    const contract_entry *entry = entry_of(contracts, type, pr__type_version(type_version));
    while (entry && entry->step)
        entry = entry_of(contracts, type, entry->version + 1);
    return entry ? entry->contract : NULL;
}

static pr_status step_up(const contract_entry *from, const pr_contract *to, pr_decoded *decoded,
                         pr_error *err)
{
    bool raw = (to->flags & PR_CONTRACT_RAW) != 0;
    void *object = pr_decoded_alloc(decoded, raw ? sizeof(pr_bytes) : to->object_size);
    if (!object)
        return pr__fail_nomem(err, ORIGIN);
    pr_error local = PR_ERROR_INIT;
    pr_status status = from->step(from->step_user, decoded->object, object, decoded, &local);
    if (status != PR_OK)
        status = pr__fail(&local, status, ORIGIN, "the step up refused the object");
    else
        status = pr__contract_check_object(to, object, &local); /* no handler meets a hole */
    if (status != PR_OK) {
        pr__error_context(&local, "'%.200s', from version %u to %u", from->type,
                          (unsigned)from->version, (unsigned)from->version + 1);
        pr__error_copy(err, &local);
        return status;
    }
    decoded->object = object;
    decoded->contract = to;
    return PR_OK;
}

pr_status pr_contracts_decode(const pr_contracts *contracts, const pr_message *message,
                              pr_decoded **ret_decoded, pr_error *err)
{
    if (!contracts || !message || !message->type || !ret_decoded)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contracts, message, its type or ret_decoded is NULL");
    uint32_t version = pr__type_version(message->type_version);
    const contract_entry *entry = entry_of(contracts, message->type, version);
    if (!entry)
        return pr__fail(err, PR_E_NOT_FOUND, ORIGIN, "no contract for type '%.200s' version %u",
                        message->type, (unsigned)version);
    AUTO(pr_decoded) decoded = NULL;
    TRY(pr_contract_decode(entry->contract, message, &decoded, err));
    while (entry->step) {
        const contract_entry *next = entry_of(contracts, entry->type, entry->version + 1);
        pr_assert(next);
        TRY(step_up(entry, next->contract, decoded, err));
        entry = next;
    }
    *ret_decoded = TAKE(decoded);
    return PR_OK;
}
