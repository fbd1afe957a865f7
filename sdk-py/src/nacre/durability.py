"""How safe a change must be before the operation answers."""

from dataclasses import dataclass
from enum import IntEnum


class DurabilityLevel(IntEnum):
    """What the server waits for before it answers a change."""

    NONE = 0
    """Nothing: the change is in the memory of the active node."""
    MAJORITY = 1
    """The change is in the memory of the majority of the copies."""
    MAJORITY_AND_PERSIST_TO_ACTIVE = 2
    """As `MAJORITY`, and the change is on the disk of the active node."""
    PERSIST_TO_MAJORITY = 3
    """The change is on the disk of the majority of the copies."""


Durability = DurabilityLevel


@dataclass(frozen=True, slots=True)
class ServerDurability:
    """A level that the server guarantees, or fails the operation."""

    level: DurabilityLevel


class PersistTo(IntEnum):
    """On how many nodes a mutation must be on disk."""

    NONE = 0
    ACTIVE = 1
    ONE = 1
    TWO = 2
    THREE = 3
    FOUR = 4


PersistToExtended = PersistTo


class ReplicateTo(IntEnum):
    """On how many replicas a mutation must be in memory."""

    NONE = 0
    ONE = 1
    TWO = 2
    THREE = 3


@dataclass(frozen=True, slots=True)
class ClientDurability:
    """What the client waits for after a mutation, by asking the nodes that hold the document."""

    replicate_to: ReplicateTo = ReplicateTo.NONE
    persist_to: PersistTo = PersistTo.NONE


DurabilityType = ServerDurability | ClientDurability
"""What the option ``durability`` takes."""
