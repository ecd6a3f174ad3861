/*
 * Frames of AMQP 0-9-1 for the fake broker: a growing buffer, written and read frame by frame.
 *
 * Methods are encoded and decoded by librabbitmq; the frame around them is written here, so that it
 * can be wrong.
 */
#ifndef PR_TESTS_FAKE_FRAMES_H
#define PR_TESTS_FAKE_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <amqp.h>
#include <amqp_framing.h>

typedef struct fake_bytes {
    unsigned char *data;
    size_t size, room;
} fake_bytes;

typedef struct fake_frame {
    uint8_t type;
    uint16_t channel;
    const unsigned char *payload;
    size_t size;
} fake_frame;

void fake_bytes_add(fake_bytes *to, const void *data, size_t size);
void fake_bytes_drop(fake_bytes *from, size_t size); /* from the front */
void fake_bytes_done(fake_bytes *of);

void fake_put_frame(fake_bytes *to, uint8_t type, uint16_t channel, const void *payload,
                    size_t size);
void fake_put_method(fake_bytes *to, uint16_t channel, amqp_method_number_t id, void *method);
/* Header and body frames; properties: flags and fields as on the wire. */
void fake_put_content(fake_bytes *to, uint16_t channel, const void *properties,
                      size_t properties_size, const void *body, size_t body_size, size_t frame_max);
/* The first frame; its bytes in the buffer, or 0 when it is not all there; aborts on a bad end. */
size_t fake_first_frame(const fake_bytes *from, fake_frame *ret_frame);
uint64_t fake_number(const unsigned char *at, size_t bytes); /* big endian */

/* Text of a field, cut to the room, with a NUL. */
void fake_text(amqp_bytes_t from, char *ret_text, size_t size);
amqp_bytes_t fake_field(const char *text);

#endif
