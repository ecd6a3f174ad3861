/*
 * AMQP URIs: anything is read or refused; what is read makes sense, and reading never shows what
 * stands where a password may stand.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "transport/amqp/uri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pr_error err = PR_ERROR_INIT;
    AUTO(pr__amqp_uris) uris = NULL;
    AUTO(char) text = pr__strndup((const char *)data, size);
    must(text != NULL);
    pr_status status = pr__amqp_uris_parse(text, &uris, &err);
    if (status != PR_OK) {
        must(!uris && (status == PR_E_CONTENT || status == PR_E_LIMIT));
        must(err.message[0] != '\0' && !strchr(err.message, '\n'));
        must(!strstr(err.message, "s3cr3t"));
        return 0;
    }
    must(uris->count > 0 && uris->count <= PR__AMQP_URIS_MAX);
    for (size_t i = 0; i < uris->count; i++) {
        const pr__amqp_uri *uri = &uris->items[i];
        must(uri->host && uri->host[0] != '\0' && uri->user && uri->password && uri->vhost);
        must(pr__utf8_valid(uri->host, strlen(uri->host)));
        must(uri->port > 0 && uri->port < 65536 && uri->channel_max > 0);
        must(uri->connect_timeout_ms > 0 && uri->heartbeat_s >= 0);
        must(!uri->certfile == !uri->keyfile);
        must(uri->tls || (!uri->certfile && !uri->cacertfile && uri->verify));
    }
    return 0;
}
