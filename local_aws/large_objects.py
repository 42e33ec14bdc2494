"""Downloads of large S3 objects, which are sent in pieces from the file in which moto stores the object.

By itself, moto reads the whole object into memory for every GET, even for a GET of a range. With boto3's
`download_file`, which fetches an object of 2 GB as ranges in ten threads, moto would read 2 GB hundreds of times, and
hold up to ten copies in memory at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

from starlette.concurrency import iterate_in_threadpool
from starlette.responses import Response, StreamingResponse

from local_aws.kit.account import ACCOUNT_ID, PARTITION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Scope

LARGE_BYTES: Final = 8 * 1024 * 1024
"""The size from which an object is streamed; moto itself keeps objects of 4 MiB and more in files."""
PIECE_BYTES: Final = 256 * 1024
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)")
# The other parameters of a GET ask for something else than the object's bytes, or for other headers.
_PLAIN_PARAMETERS: Final = re.compile(r"versionId|x-id|X-Amz-.*")


@dataclass(frozen=True, kw_only=True)
class LargeObject:
    """A large object that moto stores: its size in bytes, and moto's own record of the object."""

    size: int
    record: Any

    def pieces(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to before `end` in pieces; other readers can use the file between two pieces."""
        while start < end:
            with self.record.lock:
                # moto's public `value` reads the whole file.
                file = self.record._value_buffer  # noqa: SLF001
                file.seek(start)
                piece = file.read(min(PIECE_BYTES, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece


def large_object(scope: Scope) -> LargeObject | None:
    """Return the large object whose content an S3 request asks for; None for any other request."""
    if scope["method"] != "GET":
        return None
    bucket, _, key = unquote(scope["raw_path"].decode("latin-1")).lstrip("/").partition("/")
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    if not key or not all(map(_PLAIN_PARAMETERS.fullmatch, query)):
        return None
    from moto.backends import get_backend  # moto loads late

    backend: Any = get_backend("s3")[ACCOUNT_ID][PARTITION]
    if bucket not in backend.buckets:
        return None
    record = backend.get_object(bucket, key, version_id=query.get("versionId"))
    size = 0 if record is None else getattr(record, "contentsize", 0)
    return LargeObject(size=size, record=record) if size >= LARGE_BYTES else None


def download(stored: LargeObject, head: Response, requested: str | None) -> Response:
    """Return the answer with a large object's content, or with the requested range of it.

    Args:
        stored: the object.
        head: moto's answer to a HEAD of the object, whose headers the answer gets.
        requested: the request's Range header; one that is not a single range of bytes gets the whole object, as on S3.
    """
    start, end = _span(requested, stored.size)
    whole = (start, end) == (0, stored.size) and not _is_range(requested)
    if start >= end:
        return Response(_INVALID_RANGE, 416, {"content-range": f"bytes */{stored.size}"}, media_type="application/xml")
    answer = StreamingResponse(iterate_in_threadpool(stored.pieces(start, end)), 200 if whole else 206)
    # A range has no checksum of the whole object, and neither has an object in parts: moto's HEAD answers with the
    # checksum of the parts' checksums, without the mark that says so, and SDKs then find it wrong.
    plain = whole and getattr(stored.record, "checksum_type", None) != "COMPOSITE"
    replaced = {b"content-length", b"content-range"} | (set() if plain else _checksums(head))
    kept = [(name, value) for name, value in head.raw_headers if name.lower() not in replaced]
    answer.raw_headers = [*kept, (b"content-length", str(end - start).encode())]
    if not whole:
        answer.raw_headers.append((b"content-range", f"bytes {start}-{end - 1}/{stored.size}".encode()))
    return answer


_INVALID_RANGE: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>InvalidRange</Code>'
    "<Message>The requested range is not satisfiable</Message></Error>"
)


def _checksums(head: Response) -> set[bytes]:
    """Return the names of an answer's headers that contain checksums of the whole object."""
    return {name.lower() for name, _ in head.raw_headers if name.lower().startswith(b"x-amz-checksum-")}


def _is_range(requested: str | None) -> bool:
    """Return True if a Range header names a single range of bytes whose end is not before its start."""
    found = _RANGE.fullmatch(requested or "")
    if found is None or not (found[1] or found[2]):
        return False
    return not (found[1] and found[2]) or int(found[1]) <= int(found[2])


def _span(requested: str | None, size: int) -> tuple[int, int]:
    """Return the start and the end (exclusive) of a range in an object; both are equal if the range is empty."""
    if not _is_range(requested):
        return 0, size
    first, last = str(requested).removeprefix("bytes=").split("-")
    if not first:
        return max(size - int(last), 0), size
    start = min(int(first), size)
    return start, min(int(last) + 1, size) if last else size
