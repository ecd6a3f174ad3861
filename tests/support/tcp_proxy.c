/*
 * The TCP proxy: pairs of connections in one loop of a thread.
 */
#include "support/tcp_proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX 16
#define KEPT_MAX  (256 * 1024)
#define TICK_MS   5

typedef struct pair {
    int client, server; /* -1: free */
    unsigned char *kept;
    size_t kept_size;
} pair;

struct tcp_proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    int listener, port, server_port;
    bool stopping, withhold, cut;
    pair pairs[PAIRS_MAX];
};

static void must(bool good)
{
    if (!good)
        abort();
}

static int socket_at(int port, struct sockaddr_in *ret_address)
{
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                        .sin_port = htons((unsigned short)port)};
    return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static void pair_end(pair *of)
{
    close(of->client);
    close(of->server);
    free(of->kept);
    *of = (pair){.client = -1, .server = -1};
}

static void take(tcp_proxy *proxy)
{
    struct sockaddr_in address;
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = socket_at(proxy->server_port, &address);
    bool good = client >= 0 && server >= 0 &&
                connect(server, (const struct sockaddr *)&address, sizeof address) == 0;
    for (size_t i = 0; good && i < PAIRS_MAX; i++) {
        if (proxy->pairs[i].client >= 0)
            continue;
        proxy->pairs[i] = (pair){client, server, malloc(KEPT_MAX), 0};
        must(proxy->pairs[i].kept);
        return;
    }
    if (client >= 0)
        close(client);
    if (server >= 0)
        close(server);
}

static bool send_all(int to, const unsigned char *bytes, size_t size)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t put = send(to, bytes + sent, size - sent, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR)
            return false;
        sent += put > 0 ? (size_t)put : 0;
    }
    return true;
}

/* False at its end. */
static bool hand_on(const tcp_proxy *proxy, pair *of, const struct pollfd *client,
                    const struct pollfd *server)
{
    unsigned char piece[65536];
    if (client->revents) {
        ssize_t got = read(of->client, piece, sizeof piece);
        if (got <= 0 || !send_all(of->server, piece, (size_t)got))
            return false;
    }
    if (server->revents && of->kept_size < KEPT_MAX) {
        ssize_t got = read(of->server, of->kept + of->kept_size, KEPT_MAX - of->kept_size);
        if (got <= 0)
            return false;
        of->kept_size += (size_t)got;
    }
    if (!proxy->withhold && of->kept_size > 0) {
        if (!send_all(of->client, of->kept, of->kept_size))
            return false;
        of->kept_size = 0;
    }
    return true;
}

static void *run(void *user)
{
    tcp_proxy *proxy = user;
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->stopping) {
        struct pollfd of[1 + 2 * PAIRS_MAX];
        of[0] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            of[1 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
            of[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].server, .events = POLLIN};
        }
        pthread_mutex_unlock(&proxy->lock);
        (void)poll(of, 1 + 2 * PAIRS_MAX, TICK_MS);
        pthread_mutex_lock(&proxy->lock);
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            pair *at = &proxy->pairs[i];
            if (at->client >= 0 &&
                (proxy->cut || !hand_on(proxy, at, &of[1 + 2 * i], &of[2 + 2 * i])))
                pair_end(at);
        }
        proxy->cut = false;
        if (of[0].revents)
            take(proxy);
    }
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

tcp_proxy *tcp_proxy_start(int server_port)
{
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    tcp_proxy *proxy = calloc(1, sizeof *proxy);
    must(proxy);
    proxy->server_port = server_port;
    proxy->listener = socket_at(0, &address);
    must(bind(proxy->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
         listen(proxy->listener, PAIRS_MAX) == 0 &&
         getsockname(proxy->listener, (struct sockaddr *)&address, &size) == 0);
    proxy->port = ntohs(address.sin_port);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        proxy->pairs[i] = (pair){.client = -1, .server = -1};
    pthread_mutex_init(&proxy->lock, NULL);
    must(pthread_create(&proxy->thread, NULL, run, proxy) == 0);
    return proxy;
}

static void tell(tcp_proxy *proxy, bool *flag, bool value)
{
    pthread_mutex_lock(&proxy->lock);
    *flag = value;
    pthread_mutex_unlock(&proxy->lock);
}

void tcp_proxy_free(tcp_proxy *proxy)
{
    if (!proxy)
        return;
    tell(proxy, &proxy->stopping, true);
    pthread_join(proxy->thread, NULL);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        if (proxy->pairs[i].client >= 0)
            pair_end(&proxy->pairs[i]);
    close(proxy->listener);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

int tcp_proxy_port(const tcp_proxy *proxy)
{
    return proxy->port;
}

void tcp_proxy_withhold(tcp_proxy *proxy, bool withhold)
{
    tell(proxy, &proxy->withhold, withhold);
}

size_t tcp_proxy_withheld(tcp_proxy *proxy)
{
    size_t total = 0;
    pthread_mutex_lock(&proxy->lock);
    for (size_t i = 0; i < PAIRS_MAX; i++)
        total += proxy->pairs[i].kept_size;
    pthread_mutex_unlock(&proxy->lock);
    return total;
}

void tcp_proxy_cut(tcp_proxy *proxy)
{
    tell(proxy, &proxy->cut, true);
}
