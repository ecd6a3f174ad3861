#!/usr/bin/python3
"""Another language beside ours, by docs/wire.md and a plain AMQP client (pika) alone.

    wire.py produce URI     two messages to a topic
    wire.py bind URI        a queue of our own, bound to a topic of theirs
    wire.py consume URI     take one from it, and hold it against the page

Exit status: 0 as the page says; 1 not so; 77 no pika.
"""
import datetime
import decimal
import json
import sys
import uuid

try:
    import pika
except ImportError:
    sys.exit(77)

EXCHANGE = "shop"
QUEUE = "python"
TYPE = "urn:message:shop:order-placed"


def produce(channel):
    channel.confirm_delivery()
    everything = pika.BasicProperties(
        message_id="018e0000-0000-7000-8000-00000000beef", type=TYPE, correlation_id="talk-1",
        content_type="application/json", delivery_mode=2, headers={
            "postroom-type-version": 2,
            "postroom-key": "customer-1",
            "postroom-tenant": "north",
            "postroom-source": "python",
            "postroom-causation-id": "a cause",
            "postroom-occurred-at": "2026-01-31T12:00:00.250000Z",
            "postroom-expires-at": 4102444800000001,
            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "text": "té", "int": 7, "flag": True, "nothing": None,
            "when": datetime.datetime(2026, 1, 31, 12, 0, 0),
            "price": decimal.Decimal("1.20"), "table": {"a": [1, "b"]},
        })
    channel.basic_publish(EXCHANGE, "shop.order-placed.v2", b'{"order": 1}', everything,
                          mandatory=True)
    least = pika.BasicProperties(message_id="any text", type=TYPE)
    channel.basic_publish(EXCHANGE, "shop.order-placed.v1", b"", least, mandatory=True)


def bind(channel):
    channel.queue_declare(QUEUE, durable=True)
    channel.queue_bind(QUEUE, EXCHANGE, "shop.order-placed.*")


def compare(name, got, wanted):
    if got != wanted:
        sys.exit(f"{name}: {got!r}, wanted {wanted!r}")


def consume(channel):
    method, properties, body = channel.basic_get(QUEUE, auto_ack=True)
    if method is None:
        sys.exit("nothing is there")
    headers = properties.headers
    compare("version of the id", uuid.UUID(properties.message_id).version, 7)
    compare("type", properties.type, TYPE)
    compare("content_type", properties.content_type, "application/x-odd")
    compare("correlation_id", properties.correlation_id, "talk-2")
    compare("delivery_mode", properties.delivery_mode, 2)
    compare("timestamp", properties.timestamp, 1767225600)
    compare("exchange", method.exchange, EXCHANGE)
    compare("routing key", method.routing_key, "shop.order-placed.v3")
    compare("body", body, b"\x00\xffbody")
    for name, wanted in {"type-version": 3, "occurred-at": 1767225600123456,
                         "expires-at": 4102444800000001, "key": "k\u00e9y", "tenant": "north",
                         "source": "shop/1", "causation-id": "before",
                         "destination": "rabbitmq://topic/" + TYPE}.items():
        compare(name, headers.get("postroom-" + name), wanted)
    compare("tracestate", headers.get("tracestate"), "vendor=value")
    compare("headers", json.loads(headers["postroom-headers"]),
            {"a": "b", "n": {"int": 7}, "f": {"bool": True}})
    compare("a header of its own name", headers.get("a"), "b")
    compare("an integer of its own kind", headers.get("n"), 7)
    compare("a flag of its own kind", headers.get("f"), True)


def main():
    what, uri = sys.argv[1:]
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    {"produce": produce, "bind": bind, "consume": consume}[what](connection.channel())
    connection.close()


if __name__ == "__main__":
    main()
