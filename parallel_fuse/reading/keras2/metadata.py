"""What Keras 2 noted in a SavedModel beside the graph: each layer's configuration, as JSON.

In `keras_metadata.pb` since TensorFlow 2.5, in the object graph itself before. The message is read
by hand: TensorFlow keeps its definition in a module that is on its way out.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parallel_fuse.reading.nests import replaced

FILE = "keras_metadata.pb"
NODE_ID, METADATA = 2, 5  # numbers of the fields of SavedObject, in saved_metadata.proto
LISTS = ("__tuple__", "TensorShape")


def metadata(folder: Path, object_graph: Any) -> dict[int, dict[str, Any]]:
    """Node of the object graph → what Keras noted of it; empty where it was another program."""
    place = folder / FILE
    if place.exists():
        objects = (dict(_fields(value)) for _, value in _fields(place.read_bytes()))
        pairs = ((one.get(NODE_ID, 0), one.get(METADATA, b"")) for one in objects)
    else:
        pairs = ((i, node.user_object.metadata) for i, node in enumerate(object_graph.nodes))
    return {number: plain(json.loads(text)) for number, text in pairs if text}


def plain(nest: Any) -> Any:
    """Tuples and shapes as lists."""

    def change(part: Any) -> Any:
        marked = isinstance(part, Mapping) and part.get("class_name") in LISTS
        return list(part["items"]) if marked and "items" in part else part

    return replaced(nest, change)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a protocol buffer: numbers and strings of bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        value, place = _varint(message, place)
        if tag & 7 == 2:
            yield tag >> 3, message[place : place + value]
            place += value
        elif tag & 7 == 0:
            yield tag >> 3, value
        else:
            raise ValueError(f"expected numbers and strings. Received: a field of type {tag & 7}")


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
