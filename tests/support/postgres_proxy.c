/*
 * The proxy: pairs of connections in one loop of a child process.
 *
 * Each side is read into a buffer and handed on message by message, so that a harm falls between
 * two of them.
 */
#include "support/postgres_proxy.h"

#include <errno.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS_MAX 16
#define DELAY_MS  400
#define SYNC_MS   50

typedef struct control {
    atomic_int harm;
    atomic_int at;
    atomic_int requests; /* since it was armed */
    atomic_bool done;
} control;

struct postgres_proxy {
    pid_t pid;
    postgres_server *server;
    control *shared;
    char folder[200];
};

/* One direction's bytes that have not been handed on. */
typedef struct stream {
    int fd;
    unsigned char *data;
    size_t size, room;
} stream;

typedef struct pair {
    stream client, server;
    bool started;    /* the client's first message, which has no type, has passed */
    bool ready;      /* the server has said ReadyForQuery once */
    int backend;     /* its process id */
    int requests;    /* of this pair */
    int answers;     /* ReadyForQuery after the first */
    int swallow_at;  /* the answer that must not pass; 0 = none */
    bool cut_inside; /* but for its first statement's */
    bool cut_sync;   /* the next request passes without its end */
} pair;

static void wait_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, (ms % 1000) * 1000000}, NULL);
}

static int socket_at(const char *folder, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret_address->sun_path, sizeof ret_address->sun_path, "%.85s/.s.PGSQL.%d", folder,
             POSTGRES_SERVER_PORT);
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int connect_to(const char *folder)
{
    struct sockaddr_un address;
    int fd = socket_at(folder, &address);
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

static void stream_end(stream *of)
{
    if (of->fd >= 0)
        close(of->fd);
    free(of->data);
    *of = (stream){.fd = -1};
}

static void pair_end(pair *of)
{
    stream_end(&of->client);
    stream_end(&of->server);
}

/* False at its end. */
static bool fill(stream *of)
{
    if (of->size == of->room) {
        of->room = of->room ? 2 * of->room : 65536;
        of->data = realloc(of->data, of->room);
    }
    ssize_t got = read(of->fd, of->data + of->size, of->room - of->size);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    of->size += (size_t)got;
    return true;
}

/* The size of the first message, or 0 when it is not all there. */
static size_t first_message(const stream *of, bool typed)
{
    size_t head = typed ? 5 : 4;
    if (of->size < head)
        return 0;
    const unsigned char *at = of->data + (typed ? 1 : 0);
    size_t size =
        ((size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3]) + (typed ? 1 : 0);
    return of->size >= size ? size : 0;
}

/* False when the other side has ended; the message is gone either way. */
static bool hand_on(stream *from, int to, size_t size, bool pass)
{
    size_t sent = pass ? 0 : size;
    ssize_t put = 0;
    while (sent < size && (put >= 0 || errno == EINTR)) {
        put = send(to, from->data + sent, size - sent, MSG_NOSIGNAL);
        sent += put > 0 ? (size_t)put : 0;
    }
    memmove(from->data, from->data + size, from->size - size);
    from->size -= size;
    return sent == size;
}

static void terminate(const postgres_proxy *proxy, int backend)
{
    char uri[POSTGRES_CONNINFO_SIZE], sql[120];
    postgres_server_uri(proxy->server, "postgres", uri);
    PGconn *db = PQconnectdb(uri);
    snprintf(sql, sizeof sql, "SELECT pg_terminate_backend(%d, 10000)", backend);
    PQclear(PQexec(db, sql));
    PQfinish(db);
}

/* A request is about to be handed on; false: the pair ends here. */
static bool pass_request(postgres_proxy *proxy, pair *of)
{
    control *shared = proxy->shared;
    of->requests++;
    if (atomic_load(&shared->harm) == PROXY_NONE || atomic_load(&shared->done) ||
        atomic_fetch_add(&shared->requests, 1) + 1 != atomic_load(&shared->at))
        return true;
    atomic_store(&shared->done, true);
    switch ((proxy_harm)atomic_load(&shared->harm)) {
    case PROXY_NONE:
        return true;
    case PROXY_CUT_REQUEST:
        return false;
    case PROXY_CUT_REPLY:
        of->swallow_at = of->requests;
        return true;
    case PROXY_CUT_SYNC:
        of->cut_sync = true;
        return true;
    case PROXY_CUT_INSIDE:
        of->swallow_at = of->requests;
        of->cut_inside = true;
        return true;
    case PROXY_DELAY:
        wait_ms(DELAY_MS);
        return true;
    case PROXY_TERMINATE:
        terminate(proxy, of->backend);
        return true;
    case PROXY_CRASH:
        postgres_server_do(proxy->server, "restart immediate");
        return true;
    }
    return true;
}

/* The size of the first request, or of what stands for itself, or 0 when it is not all there. Its
   last message begins at *ret_last. */
static size_t first_request(const stream *of, bool started, size_t *ret_last)
{
    stream rest = *of;
    *ret_last = 0;
    for (size_t size; (size = first_message(&rest, started)) > 0;) {
        char type = (char)(started ? rest.data[0] : 0);
        *ret_last = of->size - rest.size;
        if (!started || !strchr("PBDECF", type))
            return *ret_last + size;
        rest.data += size;
        rest.size -= size;
    }
    return 0;
}

static bool serve_client(postgres_proxy *proxy, pair *of)
{
    size_t size, last;
    bool going = fill(&of->client);
    while (going && (size = first_request(&of->client, of->started, &last)) > 0) {
        char type = (char)(of->started ? of->client.data[last] : 0);
        if ((type == 'Q' || type == 'S') && !pass_request(proxy, of))
            return false;
        if (of->cut_sync) { /* and the end of the stream does not overtake it */
            (void)hand_on(&of->client, of->server.fd, last, true);
            wait_ms(SYNC_MS);
            return false;
        }
        of->started = true;
        /* what cannot be handed on has an end on the other side, which brings its own news */
        (void)hand_on(&of->client, of->server.fd, size, true);
    }
    return going;
}

static bool serve_server(pair *of)
{
    size_t size;
    bool going = fill(&of->server);
    while ((size = first_message(&of->server, true)) > 0) {
        char type = (char)of->server.data[0];
        bool harmed = of->swallow_at > 0 && of->answers >= of->swallow_at - 1;
        if (type == 'K' && size >= 9)
            of->backend = of->server.data[5] << 24 | of->server.data[6] << 16 |
                          of->server.data[7] << 8 | of->server.data[8];
        if (!hand_on(&of->server, of->client.fd, size, !harmed || of->cut_inside))
            return false;
        if (type == 'C' && harmed) /* of the first statement: the rest is swallowed */
            of->cut_inside = false;
        if (type != 'Z')
            continue;
        of->answers += of->ready;
        of->ready = true;
        if (of->swallow_at > 0 && of->answers >= of->swallow_at)
            return false;
    }
    return going;
}

static void take_client(const postgres_proxy *proxy, int listener, pair *pairs)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < PAIRS_MAX; i++) {
        if (pairs[i].client.fd >= 0)
            continue;
        pairs[i] = (pair){.client = {.fd = fd}, .server = {.fd = -1}};
        pairs[i].server.fd = connect_to(postgres_server_folder(proxy->server));
        if (pairs[i].server.fd < 0)
            pair_end(&pairs[i]);
        return;
    }
    if (fd >= 0)
        close(fd);
}

static void run(postgres_proxy *proxy, int listener)
{
    pair pairs[PAIRS_MAX];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < PAIRS_MAX; i++)
        pairs[i] = (pair){.client = {.fd = -1}, .server = {.fd = -1}};
    for (;;) {
        struct pollfd of[1 + 2 * PAIRS_MAX];
        of[0] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (int i = 0; i < PAIRS_MAX; i++) {
            of[1 + 2 * i] = (struct pollfd){.fd = pairs[i].client.fd, .events = POLLIN};
            of[2 + 2 * i] = (struct pollfd){.fd = pairs[i].server.fd, .events = POLLIN};
        }
        if (poll(of, 1 + 2 * PAIRS_MAX, -1) < 0 && errno != EINTR)
            _exit(1);
        for (int i = 0; i < PAIRS_MAX; i++) {
            bool going = true;
            if (pairs[i].client.fd >= 0 && of[2 + 2 * i].revents)
                going = serve_server(&pairs[i]);
            if (going && pairs[i].client.fd >= 0 && of[1 + 2 * i].revents)
                going = serve_client(proxy, &pairs[i]);
            if (!going)
                pair_end(&pairs[i]);
        }
        if (of[0].revents)
            take_client(proxy, listener, pairs);
    }
}

postgres_proxy *postgres_proxy_start(postgres_server *server)
{
    struct sockaddr_un address;
    postgres_proxy *proxy = calloc(1, sizeof *proxy);
    if (!proxy)
        abort();
    proxy->server = server;
    proxy->shared = mmap(NULL, sizeof *proxy->shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(proxy->folder, sizeof proxy->folder, "%s/proxy", postgres_server_folder(server));
    if (proxy->shared == MAP_FAILED || mkdir(proxy->folder, 0755) != 0)
        abort();
    int listener = socket_at(proxy->folder, &address);
    if (bind(listener, (const struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, PAIRS_MAX) != 0)
        abort();
    fflush(NULL);
    proxy->pid = fork();
    if (proxy->pid == 0)
        run(proxy, listener);
    close(listener);
    return proxy;
}

void postgres_proxy_free(postgres_proxy *proxy)
{
    if (!proxy)
        return;
    kill(proxy->pid, SIGKILL);
    waitpid(proxy->pid, NULL, 0);
    munmap(proxy->shared, sizeof *proxy->shared);
    free(proxy);
}

void postgres_proxy_uri(const postgres_proxy *proxy, const char *database,
                        char ret_uri[POSTGRES_CONNINFO_SIZE])
{
    postgres_folder_uri(proxy->folder, database, ret_uri);
}

void postgres_proxy_arm(postgres_proxy *proxy, proxy_harm harm, int at)
{
    atomic_store(&proxy->shared->requests, 0);
    atomic_store(&proxy->shared->at, at);
    atomic_store(&proxy->shared->done, false);
    atomic_store(&proxy->shared->harm, harm);
}

int postgres_proxy_requests(const postgres_proxy *proxy)
{
    return atomic_load(&proxy->shared->requests);
}

bool postgres_proxy_disarm(postgres_proxy *proxy)
{
    atomic_store(&proxy->shared->harm, PROXY_NONE);
    return atomic_load(&proxy->shared->done);
}
