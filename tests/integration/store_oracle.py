"""What every call of the Store answers, said once more in the simplest way there is: a dict. Memory is never short, and
time stands still but where `forget_leases` says so."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from store_rig import INVALID, LEASED, MISSING

LONGEST_KEY = 4096


@dataclass
class Object:
    value: bytes
    copies: int
    leased: bool = False  # since it was published


class Oracle:
    """Each method is the answer for one key of a call; a batch asks for its keys in order."""

    def __init__(self, segments: int) -> None:
        self.objects: dict[bytes, Object] = {}
        self.segments = segments

    @staticmethod
    def wrong(key: bytes) -> bool:
        return not 1 <= len(key) <= LONGEST_KEY

    def put(self, key: bytes, value: bytes, copies: int = 1) -> int:
        if self.wrong(key) or not value:
            return INVALID
        if key not in self.objects:
            self.objects[key] = Object(value, min(copies, self.segments))
        return 0

    def upsert(self, key: bytes, value: bytes, copies: int = 1) -> int:
        if self.wrong(key) or not value:
            return INVALID
        self.objects[key] = Object(value, min(copies, self.segments))
        return 0

    def get(self, key: bytes) -> bytes:
        found = self.objects.get(key)
        if found is None:
            return b""
        found.leased = True
        return found.value

    def exist(self, key: bytes) -> int:
        return INVALID if self.wrong(key) else int(self.get(key) != b"")

    def size(self, key: bytes) -> int:
        if self.wrong(key):
            return INVALID
        return len(self.get(key)) or MISSING

    def get_into(self, key: bytes, room: int) -> int:
        size = self.size(key)
        return INVALID if size > room else size

    def copies(self, key: bytes) -> int:
        return self.objects[key].copies if self.get(key) else 0

    def remove(self, key: bytes, force: bool) -> int:
        if self.wrong(key):
            return INVALID
        found = self.objects.get(key)
        if found is None:
            return MISSING
        if found.leased and not force:
            return LEASED
        del self.objects[key]
        return 0

    def _sweep(self, matches: Callable[[bytes], object], force: bool) -> int:
        gone = [key for key, found in self.objects.items()
                if (force or not found.leased) and matches(key)]
        for key in gone:
            del self.objects[key]
        return len(gone)

    def remove_by_regex(self, pattern: str, force: bool) -> int:
        try:
            search = re.compile(pattern.encode()).search
        except re.error:
            return INVALID
        return self._sweep(search, force) if pattern else INVALID

    def remove_all(self, force: bool) -> int:
        return self._sweep(lambda key: True, force)

    def forget_leases(self) -> None:
        for found in self.objects.values():
            found.leased = False
