/*
 * Turns, by flock() on the folder of the database.
 */
#include "store/sqlite/turn.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/text.h"
#include "base/time.h"

#define YIELD_STEP_US 50

static int open_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (!slash)
        pr__format(folder, sizeof folder, ".");
    else if (slash == path)
        pr__format(folder, sizeof folder, "/");
    else
        pr__format(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int pr__turn_take(const char *path)
{
    int fd = open_folder(path);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int pr__turn_release(int fd)
{
    if (fd >= 0)
        close(fd); /* the lock goes with it */
    return -1;
}

void pr__turn_yield(const char *path, int64_t limit_us)
{
    int fd = open_folder(path);
    if (fd < 0)
        return;
    int64_t until = 0;
    while (flock(fd, LOCK_SH | LOCK_NB) != 0) {
        int64_t now = pr__monotonic_us();
        if (until == 0)
            until = now + limit_us;
        if (now >= until)
            break;
        pr__sleep_us(YIELD_STEP_US);
    }
    close(fd);
}
