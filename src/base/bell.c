/*
 * The doorbell between processes.
 *
 * Invariants: nothing here blocks, and no failure is anybody's: without a bell one polls. A path is
 * unlinked only when it is a socket, and nobody listens on it or it is ours.
 * Must not know: who rings, and what for.
 */
#include "base/bell.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"

#define LOOK_EVERY_US 2000000
#define TAKE_MAX      64 /* datagrams a call; the system queues fewer */

const char *pr__bell_path(const char *given)
{
    const char *path = given ? given : getenv(PR__BELL_ENVIRONMENT);
    return path ? path : "";
}

static bool address_of(const char *path, struct sockaddr_un *ret_address)
{
    size_t size = strlen(path);
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (size == 0 || size >= sizeof ret_address->sun_path)
        return false;
    memcpy(ret_address->sun_path, path, size + 1);
    return true;
}

static int socket_new(void)
{
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool pr__bell_ring(const char *path)
{
    struct sockaddr_un address;
    if (!address_of(path, &address))
        return false;
    int kept = errno;
    int fd = socket_new();
    ssize_t sent = -1;
    if (fd >= 0) {
        sent = sendto(fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
                      sizeof address);
        if (sent < 0 && errno == EAGAIN)
            sent = 0; /* full: it rings already */
        close(fd);
    }
    errno = kept;
    return sent >= 0;
}

/* ---- listening ---- */

void pr__bell_init(pr__bell *bell, const char *path)
{
    *bell = (pr__bell){.fd = -1};
    if (strlen(path) < sizeof bell->path)
        pr__format(bell->path, sizeof bell->path, "%s", path);
}

static bool is_ours(const pr__bell *bell)
{
    struct stat at;
    return lstat(bell->path, &at) == 0 && (uint64_t)at.st_dev == bell->device &&
           (uint64_t)at.st_ino == bell->inode;
}

/* A socket whose listener is gone? */
static bool is_stale(const struct sockaddr_un *address)
{
    struct stat at;
    if (lstat(address->sun_path, &at) != 0 || !S_ISSOCK(at.st_mode))
        return false;
    int fd = socket_new();
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
                 errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return stale;
}

static bool bind_to(int fd, const struct sockaddr_un *address)
{
    return bind(fd, (const struct sockaddr *)address, sizeof *address) == 0;
}

static void listen_at(pr__bell *bell)
{
    struct sockaddr_un address;
    struct stat at;
    if (!address_of(bell->path, &address))
        return;
    int fd = socket_new();
    if (fd < 0)
        return;
    bool bound = bind_to(fd, &address);
    if (!bound && errno == EADDRINUSE && is_stale(&address) && unlink(bell->path) == 0)
        bound = bind_to(fd, &address);
    if (!bound || lstat(bell->path, &at) != 0) {
        close(fd);
        return;
    }
    bell->fd = fd;
    bell->device = (uint64_t)at.st_dev;
    bell->inode = (uint64_t)at.st_ino;
}

void pr__bell_tend(pr__bell *bell, int64_t now_us)
{
    if (bell->path[0] == '\0' || now_us < bell->look_at_us)
        return;
    bell->look_at_us = now_us + LOOK_EVERY_US;
    if (bell->fd >= 0 && !is_ours(bell)) { /* removed or replaced: nobody reaches us there */
        close(bell->fd);
        bell->fd = -1;
    }
    if (bell->fd < 0)
        listen_at(bell);
}

bool pr__bell_take(pr__bell *bell)
{
    char nothing[16];
    bool rang = false;
    for (int i = 0; i < TAKE_MAX && bell->fd >= 0; i++) {
        if (recv(bell->fd, nothing, sizeof nothing, MSG_DONTWAIT) < 0)
            break;
        rang = true;
    }
    return rang;
}

void pr__bell_done(pr__bell *bell)
{
    if (bell->fd < 0)
        return;
    if (is_ours(bell))
        unlink(bell->path);
    close(bell->fd);
    bell->fd = -1;
    bell->look_at_us = 0;
}
