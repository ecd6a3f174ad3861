/*
 * A growing byte buffer with a sticky error.
 *
 * Owns: the growth policy and the closing NUL.
 * Keeps: once an append failed, the buffer stays failed until it is cleared; a reader that asks
 * for the text then gets NULL, never half of it.
 * Must not know: what the bytes mean.
 */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

#define BUFFER_FIRST_CAPACITY 128

void pr__buffer_done(pr__buffer *buffer)
{
    buffer->data = pr__free(buffer->data);
    buffer->size = 0;
    buffer->capacity = 0;
    buffer->failed = false;
}

void pr__buffer_clear(pr__buffer *buffer)
{
    buffer->size = 0;
    buffer->failed = false;
    if (buffer->data)
        buffer->data[0] = '\0';
}

/* Room for `more` bytes and the NUL. */
static bool reserve(pr__buffer *buffer, size_t more)
{
    if (buffer->failed)
        return false;
    if (more < buffer->capacity - buffer->size && buffer->capacity > buffer->size)
        return true;
    if (more > SIZE_MAX / 2 || buffer->size > SIZE_MAX / 4) {
        buffer->failed = true;
        return false;
    }
    size_t capacity = buffer->capacity ? buffer->capacity * 2 : BUFFER_FIRST_CAPACITY;
    if (capacity < buffer->size + more + 1)
        capacity = buffer->size + more + 1;
    char *grown = pr__realloc_array(buffer->data, capacity, 1);
    if (!grown) {
        buffer->failed = true;
        return false;
    }
    buffer->data = grown;
    buffer->capacity = capacity;
    return true;
}

void pr__buffer_append(pr__buffer *buffer, const void *data, size_t size)
{
    if (!reserve(buffer, size))
        return;
    if (size > 0)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
    buffer->data[buffer->size] = '\0';
}

void pr__buffer_append_text(pr__buffer *buffer, const char *text)
{
    pr__buffer_append(buffer, text, strlen(text));
}

void pr__buffer_append_char(pr__buffer *buffer, char c)
{
    pr__buffer_append(buffer, &c, 1);
}

void pr__buffer_printf(pr__buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0) {
        buffer->failed = true;
        return;
    }
    if (!reserve(buffer, (size_t)size))
        return;
    va_start(args, format);
    int written = vsnprintf(buffer->data + buffer->size, (size_t)size + 1, format, args);
    va_end(args);
    if (written != size) {
        buffer->failed = true;
        return;
    }
    buffer->size += (size_t)size;
}

const char *pr__buffer_text(pr__buffer *buffer)
{
    if (buffer->failed)
        return NULL;
    return buffer->data ? buffer->data : "";
}

char *pr__buffer_take(pr__buffer *buffer)
{
    if (!reserve(buffer, 0)) {
        pr__buffer_done(buffer);
        return NULL;
    }
    char *data = TAKE(buffer->data);
    data[buffer->size] = '\0';
    pr__buffer_done(buffer);
    return data;
}
