/*
 * One contract: which of its codecs writes and reads, and the decoded object.
 *
 * Owns: the checks that a contract passes, and the choice by content type: a codec of the
 * application's own, else the field table for JSON, else the bytes as they are.
 * Keeps: an error carries type and version; a call that fails gives nothing.
 * Must not know: which other contracts there are, handlers, transports, stores.
 */
#include "core/contract.h"

#include <string.h>

#include <postroom/headers.h>

#include "base/error.h"
#include "base/text.h"
#include "core/message.h"
#include "core/type.h"

#define ORIGIN      "contract"
#define FLAGS_KNOWN (PR_CONTRACT_RAW | PR_CONTRACT_REFUSE_UNKNOWN | PR_CONTRACT_UNROUTED_OK)
#define CODECS_MAX  16 /* of one contract */

const char *pr__contract_headers(const pr_contract *contract)
{
    bool unrouted_ok = (contract->flags & PR_CONTRACT_UNROUTED_OK) != 0;
    return unrouted_ok ? "{\"" PR_HEADER_NAME_UNROUTED_OK "\":{\"bool\":true}}" : NULL;
}

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

const char *pr_contract_content_type(const pr_contract *contract)
{
    if (!contract)
        return NULL;
    if (contract->content_type)
        return contract->content_type;
    if (contract->flags & PR_CONTRACT_RAW)
        return PR_CONTENT_TYPE_BYTES;
    bool by_codec = !contract->fields && contract->codecs && contract->codecs[0];
    return by_codec ? contract->codecs[0]->content_type : PR_CONTENT_TYPE_JSON;
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

/* `application/json` and `…+json`, whatever their parameters. */
static bool is_json(const char *content_type)
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

/* The application's own codec of a content type, or NULL. */
static const pr_codec *find_codec(const pr_contract *contract, const char *content_type)
{
    for (const pr_codec *const *codec = contract->codecs; codec && *codec; codec++) {
        if (media_equal((*codec)->content_type, content_type))
            return *codec;
    }
    return NULL;
}

/* The rules are the message's: a message with this content type must pass. */
static pr_status check_content_type(const pr_contract *contract, const char *content_type,
                                    pr_error *err)
{
    const pr_message message = PR_MESSAGE(.type = contract->type, .content_type = content_type);
    return pr_message_check(&message, 0, err);
}

static pr_status check_codec(const pr_contract *contract, size_t index, pr_error *err)
{
    const pr_codec *codec = contract->codecs[index];
    if (codec->size < sizeof(*codec) || !codec->content_type || !codec->encode || !codec->decode)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "codec %zu has no size, no content_type, no encode or no decode", index);
    TRY(check_content_type(contract, codec->content_type, err));
    if (contract->fields && is_json(codec->content_type))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "codec %zu is for '%s', which the fields are for", index,
                        codec->content_type);
    for (size_t i = 0; i < index; i++) {
        if (media_equal(contract->codecs[i]->content_type, codec->content_type))
            return pr__fail(err, PR_E_INVALID, ORIGIN, "two codecs are for '%s'",
                            codec->content_type);
    }
    return PR_OK;
}

/* What it writes, and what else it reads. */
static pr_status check_codecs(const pr_contract *contract, pr_error *err)
{
    const char *content_type = contract->content_type;
    for (size_t i = 0; contract->codecs && contract->codecs[i]; i++) {
        if (i == CODECS_MAX)
            return pr__fail(err, PR_E_LIMIT, ORIGIN, "more than %d codecs, or no end: one NULL",
                            CODECS_MAX);
        TRY(check_codec(contract, i, err));
    }
    if (!content_type)
        return PR_OK;
    TRY(check_content_type(contract, content_type, err));
    if ((contract->flags & PR_CONTRACT_RAW) || find_codec(contract, content_type) ||
        (contract->fields && is_json(content_type)))
        return PR_OK;
    return pr__fail(err, PR_E_INVALID, ORIGIN,
                    "content_type is '%s', but fields are written as JSON, and no codec is for it",
                    content_type);
}

pr_status pr__contract_check_shape(const pr_contract *contract, pr_error *err)
{
    if (!contract || contract->size < sizeof(*contract))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract is NULL, or size is not sizeof(pr_contract)");
    if (!contract->type)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "contract has no type");
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    if (raw && (contract->fields || contract->codecs || contract->object_size != 0))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract '%s' is raw bytes: it has no fields, codecs or object_size",
                        contract->type);
    bool codecs = contract->codecs && contract->codecs[0];
    if (!raw && ((!contract->fields && !codecs) || contract->object_size == 0))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "contract '%s' has no fields or no object_size, and is not raw bytes",
                        contract->type);
    return PR_OK;
}

pr_status pr__contract_check(const pr_contract *contract, pr_error *err)
{
    TRY(pr__type_check(contract->type, strlen(contract->type), NULL, err));
    TRY(pr__type_version_check(contract->type_version, err));
    if (contract->kind < PR_CONTRACT_DOMAIN_EVENT || contract->kind > PR_CONTRACT_REPLY)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "kind is none of domain event, integration event, command, reply");
    if (contract->flags & ~FLAGS_KNOWN)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "flags has unknown bits");
    if (!contract->fields && (contract->flags & PR_CONTRACT_REFUSE_UNKNOWN))
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "raw bytes have no fields that could be unknown, nor has a codec");
    TRY(check_codecs(contract, err));
    if (contract->fields)
        TRY(pr__contract_table_check(contract, err));
    return PR_OK;
}

static pr_status encode_raw(const pr_bytes *bytes, pr__buffer *out, pr_error *err)
{
    if (!bytes->data && bytes->size > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the bytes are NULL with a size");
    pr__buffer_append(out, bytes->data, bytes->size);
    return PR_OK;
}

static pr_status encode_own(const pr_codec *codec, const pr_contract *contract, const void *object,
                            void **ret_body, size_t *ret_size, pr_error *err)
{
    AUTO(void) body = NULL;
    size_t size = 0;
    pr_status status = codec->encode(codec->user, contract, object, &body, &size, err);
    if (status != PR_OK)
        return pr__fail(err, status, ORIGIN, "the codec of '%s' refused the object",
                        codec->content_type);
    if (!body && size > 0)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "the codec of '%s' gave NULL with a size",
                        codec->content_type);
    if (!body)
        body = pr__alloc(1);
    if (!body)
        return pr__fail_nomem(err, ORIGIN);
    *ret_body = TAKE(body);
    *ret_size = size;
    return PR_OK;
}

static pr_status encode(const pr_contract *contract, const char *content_type, const void *object,
                        void **ret_body, size_t *ret_size, pr_error *err)
{
    bool raw = (contract->flags & PR_CONTRACT_RAW) != 0;
    const pr_codec *codec = find_codec(contract, content_type);
    if (codec)
        return encode_own(codec, contract, object, ret_body, ret_size, err);
    if (!raw && (!contract->fields || !is_json(content_type)))
        return pr__fail(err, PR_E_UNSUPPORTED, ORIGIN, "it has no codec for '%.255s'",
                        content_type);
    AUTO_BUFFER body = PR_BUFFER_INIT;
    TRY(raw ? encode_raw(object, &body, err)
            : pr__contract_json_encode(contract->fields, object, &body, err));
    size_t size = body.size;
    char *taken = pr__buffer_take(&body);
    if (!taken)
        return pr__fail_nomem(err, ORIGIN);
    *ret_body = taken;
    *ret_size = size;
    return PR_OK;
}

/* Whose error it is. */
static void tell_contract(const pr_contract *contract, pr_error *local, pr_error *err)
{
    pr__error_context(local, "'%.200s' version %u", contract->type,
                      (unsigned)pr__type_version(contract->type_version));
    pr__error_copy(err, local);
}

pr_status pr_contract_encode_as(const pr_contract *contract, const char *content_type,
                                const void *object, void **ret_body, size_t *ret_size,
                                pr_error *err)
{
    TRY(pr__contract_check_shape(contract, err));
    if (!content_type || !object || !ret_body || !ret_size)
        return pr__fail(err, PR_E_INVALID, ORIGIN,
                        "content_type, object, ret_body or ret_size is NULL");
    AUTO(void) body = NULL;
    size_t size = 0;
    pr_error local = PR_ERROR_INIT;
    pr_status status = encode(contract, content_type, object, &body, &size, &local);
    if (status == PR_OK && size > PR_BODY_SIZE_MAX)
        status = pr__fail(&local, PR_E_LIMIT, ORIGIN, "the body has %zu bytes, at most %lld", size,
                          PR_BODY_SIZE_MAX);
    if (status != PR_OK) {
        tell_contract(contract, &local, err);
        return status;
    }
    *ret_body = TAKE(body);
    *ret_size = size;
    return PR_OK;
}

pr_status pr_contract_encode(const pr_contract *contract, const void *object, void **ret_body,
                             size_t *ret_size, pr_error *err)
{
    TRY(pr__contract_check_shape(contract, err));
    return pr_contract_encode_as(contract, pr_contract_content_type(contract), object, ret_body,
                                 ret_size, err);
}

pr_status pr__contract_check_object(const pr_contract *contract, const void *object, pr_error *err)
{
    AUTO_BUFFER scratch = PR_BUFFER_INIT;
    if (contract->flags & PR_CONTRACT_RAW)
        TRY(encode_raw(object, &scratch, err));
    else if (contract->fields)
        TRY(pr__contract_json_encode(contract->fields, object, &scratch, err));
    return scratch.failed ? pr__fail_nomem(err, ORIGIN) : PR_OK;
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
    return PR_OK;
}

static pr_status wrong_content_type(const pr_contract *contract, const char *given, pr_error *err)
{
    return pr__fail(err, PR_E_CONTENT, ORIGIN,
                    "the message has content type '%.255s', the contract '%s'", given,
                    pr_contract_content_type(contract));
}

static pr_status decode_object(const pr_contract *contract, const pr_message *message,
                               pr_decoded *decoded, pr_error *err)
{
    const char *given = message->content_type ? message->content_type : PR_CONTENT_TYPE_JSON;
    const pr_codec *codec = find_codec(contract, given);
    if (contract->flags & PR_CONTRACT_RAW) {
        if (contract->content_type && !media_equal(contract->content_type, given))
            return wrong_content_type(contract, given, err);
        return decode_raw(message, decoded->arena, decoded->object, err);
    }
    if (!codec && (!contract->fields || !is_json(given)))
        return wrong_content_type(contract, given, err);
    if (!codec)
        return pr__contract_json_decode(contract, message, decoded->arena, decoded->object, err);
    pr_status status = codec->decode(codec->user, contract, message, decoded, decoded->object, err);
    if (status != PR_OK)
        return pr__fail(err, status, ORIGIN, "the codec of '%s' refused the body",
                        codec->content_type);
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
    *decoded = (pr_decoded){.arena = arena, .object = object, .contract = contract};
    TRY(decode_object(contract, message, decoded, err));
    *ret_decoded = decoded;
    return PR_OK;
}

pr_status pr_contract_decode(const pr_contract *contract, const pr_message *message,
                             pr_decoded **ret_decoded, pr_error *err)
{
    TRY(pr__contract_check_shape(contract, err));
    if (!ret_decoded)
        return pr__fail(err, PR_E_INVALID, ORIGIN, "ret_decoded is NULL");
    AUTO(pr__arena) arena = pr__arena_new(4096);
    if (!arena)
        return pr__fail_nomem(err, ORIGIN);
    pr_error local = PR_ERROR_INIT;
    pr_status status = decode(contract, message, arena, ret_decoded, &local);
    if (status != PR_OK) {
        tell_contract(contract, &local, err);
        return status;
    }
    arena = NULL; /* decoded's now */
    return PR_OK;
}

const void *pr_decoded_object(const pr_decoded *decoded)
{
    return decoded ? decoded->object : NULL;
}

const pr_contract *pr_decoded_contract(const pr_decoded *decoded)
{
    return decoded ? decoded->contract : NULL;
}

void *pr_decoded_alloc(pr_decoded *decoded, size_t size)
{
    bool fits = decoded && size <= (size_t)PR_DECODED_SIZE_MAX;
    return fits ? pr__arena_alloc(decoded->arena, size > 0 ? size : 1) : NULL;
}

pr_decoded *pr_decoded_free(pr_decoded *decoded)
{
    if (decoded)
        pr__arena_free(decoded->arena);
    return NULL;
}

void *pr_alloc(size_t size)
{
    return pr__alloc(size > 0 ? size : 1);
}

void *pr_free(void *memory)
{
    return pr__free(memory);
}
