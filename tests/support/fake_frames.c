/*
 * Frames: 1 byte type, 2 bytes channel, 4 bytes size, payload, 0xCE.
 */
#include "support/fake_frames.h"

#include <stdlib.h>
#include <string.h>

#define HEAD_SIZE   7
#define FRAME_END   0xCE
#define METHOD_ROOM 16384

void fake_bytes_add(fake_bytes *to, const void *data, size_t size)
{
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        to->data = realloc(to->data, to->room);
        if (!to->data)
            abort();
    }
    if (size > 0)
        memcpy(to->data + to->size, data, size);
    to->size += size;
}

void fake_bytes_drop(fake_bytes *from, size_t size)
{
    memmove(from->data, from->data + size, from->size - size);
    from->size -= size;
}

void fake_bytes_done(fake_bytes *of)
{
    free(of->data);
    *of = (fake_bytes){0};
}

static void put_number(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * (bytes - 1 - i)));
}

uint64_t fake_number(const unsigned char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | at[i];
    return value;
}

void fake_put_frame(fake_bytes *to, uint8_t type, uint16_t channel, const void *payload,
                    size_t size)
{
    unsigned char head[HEAD_SIZE] = {type};
    const unsigned char end = FRAME_END;
    put_number(head + 1, channel, 2);
    put_number(head + 3, size, 4);
    fake_bytes_add(to, head, sizeof head);
    fake_bytes_add(to, payload, size);
    fake_bytes_add(to, &end, 1);
}

void fake_put_method(fake_bytes *to, uint16_t channel, amqp_method_number_t id, void *method)
{
    unsigned char payload[METHOD_ROOM];
    amqp_bytes_t room = {.len = sizeof payload - 4, .bytes = payload + 4};
    put_number(payload, id, 4);
    int size = amqp_encode_method(id, method, room);
    if (size < 0)
        abort();
    fake_put_frame(to, AMQP_FRAME_METHOD, channel, payload, (size_t)size + 4);
}

void fake_put_content(fake_bytes *to, uint16_t channel, const void *properties,
                      size_t properties_size, const void *body, size_t body_size, size_t frame_max)
{
    const unsigned char none[2] = {0, 0};
    unsigned char head[12] = {0, 60}; /* class basic, weight 0, size of the body */
    fake_bytes payload = {0};
    put_number(head + 4, body_size, 8);
    fake_bytes_add(&payload, head, sizeof head);
    fake_bytes_add(&payload, properties ? properties : none, properties ? properties_size : 2);
    fake_put_frame(to, AMQP_FRAME_HEADER, channel, payload.data, payload.size);
    fake_bytes_done(&payload);
    for (size_t at = 0, part = frame_max - HEAD_SIZE - 1; at < body_size; at += part) {
        size_t size = body_size - at < part ? body_size - at : part;
        fake_put_frame(to, AMQP_FRAME_BODY, channel, (const unsigned char *)body + at, size);
    }
}

size_t fake_first_frame(const fake_bytes *from, fake_frame *ret_frame)
{
    if (from->size < HEAD_SIZE)
        return 0;
    size_t size = (size_t)fake_number(from->data + 3, 4);
    if (from->size < HEAD_SIZE + size + 1)
        return 0;
    if (from->data[HEAD_SIZE + size] != FRAME_END)
        abort(); /* the client is ours, or librabbitmq: it does no such thing */
    *ret_frame = (fake_frame){.type = from->data[0],
                              .channel = (uint16_t)fake_number(from->data + 1, 2),
                              .payload = from->data + HEAD_SIZE,
                              .size = size};
    return HEAD_SIZE + size + 1;
}

void fake_text(amqp_bytes_t from, char *ret_text, size_t size)
{
    size_t length = from.len < size ? from.len : size - 1;
    if (length > 0)
        memcpy(ret_text, from.bytes, length);
    ret_text[length] = '\0';
}

amqp_bytes_t fake_field(const char *text)
{
    return amqp_cstring_bytes(text ? text : "");
}
