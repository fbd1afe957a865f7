"""Durability that a change must reach before the operation returns."""

from enum import IntEnum

from ._record import dataclass


class DurabilityLevel(IntEnum):
    """Durability that the server waits for before it responds to a change."""

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
    """A level that the server ensures; otherwise the operation fails."""

    level: DurabilityLevel


class PersistTo(IntEnum):
    """Number of nodes that must have a mutation on disk."""

    NONE = 0
    ACTIVE = 1
    ONE = 1
    TWO = 2
    THREE = 3
    FOUR = 4


PersistToExtended = PersistTo


class ReplicateTo(IntEnum):
    """Number of replicas that must have a mutation in memory."""

    NONE = 0
    ONE = 1
    TWO = 2
    THREE = 3


@dataclass(frozen=True, slots=True)
class ClientDurability:
    """Durability that the client waits for after a mutation, by polling the nodes with the
    document.
    """

    replicate_to: ReplicateTo = ReplicateTo.NONE
    persist_to: PersistTo = PersistTo.NONE


DurabilityType = ServerDurability | ClientDurability
"""What the option ``durability`` takes."""
