"""The settings of an app, checked when the app is created: every name of runnel, with Squall's
defaults."""

from __future__ import annotations

import datetime
import enum
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from squall.streams._errors import Misconfigured
from squall.streams._formats import Serializer
from squall.streams._options import check_names


class ExceptionPolicy(enum.Enum):
    """What the worker does when a processor raises and has no retries left."""

    #: Mark the partition in Redis, so that no other worker repeats the failure, and stop this
    #: worker.
    HALT = "halt"
    #: Mark the partition and continue with the others.
    QUARANTINE = "quarantine"
    #: Acknowledge the failed events and continue.
    IGNORE = "ignore"

    @classmethod
    def read(cls, value: object) -> ExceptionPolicy:
        if isinstance(value, cls):
            return value
        try:
            return cls(str(value).lower())
        except ValueError:
            raise Misconfigured(f"exception_policy={value!r} is unknown; there are HALT, QUARANTINE and IGNORE") from None


def md5hash(key: object) -> int:
    """Names the hasher that runnel uses where xxhash is not installed."""
    raise NotImplementedError("pass md5hash, or 'md5', as a stream's hasher; hashing happens in the engine")


def fasthash(key: object) -> int:
    """Names the default hasher, xxh64."""
    raise NotImplementedError("pass fasthash, or 'xxh64', as a stream's hasher; hashing happens in the engine")


def hasher_name(hasher: object) -> str:
    if hasher in ("md5", "xxh64"):
        return str(hasher)
    name = {"md5hash": "md5", "fasthash": "xxh64"}.get(getattr(hasher, "__name__", ""))
    if name is None:
        raise Misconfigured(f"hasher={hasher!r} is unknown; there are 'xxh64' (default) and 'md5', which senders in all languages have")
    return name


def zone_name(zone: datetime.tzinfo | str) -> str:
    """Returns the name of a time zone."""
    if isinstance(zone, str):
        return zone
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)
    if name is None and zone == datetime.UTC:
        name = "UTC"
    if name is None:
        raise Misconfigured(f"time zone {zone!r} has no name; use zoneinfo.ZoneInfo('Europe/Berlin') or its name")
    return str(name)


@dataclass
class Settings:
    """Keyword arguments of :class:`App`. Durations are seconds."""

    redis_url: str = "redis://127.0.0.1:6379"
    #: Prefix of every Redis key; '' for the key names of runnel.
    namespace: str = "squall"
    log_format: str = "console"
    log_level: str = "info"
    #: Modules to import when a worker starts, as a pattern of files: "shop/**/streams.py".
    autodiscover: str | None = None
    timezone: datetime.tzinfo | str = "UTC"
    default_partition_count: int = 16
    default_partition_size: int = 50_000
    default_serializer: Serializer | None = None
    default_hasher: str | Callable[[Any], int] = "xxh64"
    default_exception_policy: ExceptionPolicy | str = ExceptionPolicy.HALT
    default_lock_expiry: float = 3.5
    default_prefetch_count: int = 256
    default_grace_period: float = 8
    default_pool_size: int = 16
    default_join_delay: float = 0.25
    # Settings of runnel that have no effect here: reads do not block, and assignments are not
    # retried.
    leadership_poll_interval: int = 4000
    testing: bool = False
    default_read_timeout: int = 2000
    default_assignment_attempts: int = 32
    default_assignment_sleep: float = 2

    @classmethod
    def read(cls, given: dict[str, Any]) -> Settings:
        check_names("App has no setting", given, (field.name for field in fields(cls)))
        if "redis_url" not in given and os.environ.get("SQUALL_REDIS"):
            given = {**given, "redis_url": os.environ["SQUALL_REDIS"]}
        settings = cls(**given)
        if "://" not in settings.redis_url:
            settings.redis_url = f"redis://{settings.redis_url}"
        return settings
