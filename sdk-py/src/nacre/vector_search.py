"""Vectors to search for."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from ._record import dataclass
from .exceptions import InvalidArgumentException

if TYPE_CHECKING:
    from .search import SearchQuery


class VectorQueryCombination(Enum):
    """Whether documents must be near all vectors, or near one of them."""

    AND = "and"
    OR = "or"


@dataclass(slots=True)
class VectorQuery:
    """A query vector, as numbers or in base64."""

    field_name: str
    vector: Sequence[float] | str
    num_candidates: int | None = None
    boost: float | None = None
    prefilter: "SearchQuery | None" = None

    def __post_init__(self) -> None:
        if not self.vector or not self.field_name:
            raise InvalidArgumentException("a vector query has a field and a vector")

    @classmethod
    def create(
        cls,
        field_name: str,
        vector: Sequence[float] | str,
        num_candidates: int | None = None,
        boost: float | None = None,
        prefilter: "SearchQuery | None" = None,
    ) -> "VectorQuery":
        """Equivalent to the constructor."""
        return cls(field_name, vector, num_candidates, boost, prefilter)

    @property
    def vector_base64(self) -> str | None:
        """Returns the vector in base64, if it was given in this form."""
        return self.vector if isinstance(self.vector, str) else None

    def encode(self) -> dict[str, Any]:
        """Returns the JSON object.

        Raises:
            InvalidArgumentException: if the field or the vector is missing.
        """
        if not self.field_name or not len(self.vector):
            raise InvalidArgumentException("a vector query has a field and a vector")
        members: dict[str, Any] = {"field": self.field_name, "k": self.num_candidates or 3}
        if isinstance(self.vector, str):
            members["vector_base64"] = self.vector
        else:
            members["vector"] = [float(number) for number in self.vector]
        if self.boost is not None:
            members["boost"] = self.boost
        if self.prefilter is not None:
            members["filter"] = self.prefilter.encodable
        return members


@dataclass(slots=True)
class VectorSearch:
    """Query vectors, and their combination."""

    queries: list[VectorQuery]
    options: "dict[str, Any] | None" = None

    def __post_init__(self) -> None:
        if not self.queries or not all(isinstance(one, VectorQuery) for one in self.queries):
            raise InvalidArgumentException("a vector search has vector queries")

    @classmethod
    def from_vector_query(cls, query: VectorQuery) -> "VectorSearch":
        """Creates a search for one vector."""
        return cls([query])

    @property
    def combination(self) -> VectorQueryCombination | None:
        """Returns the combination of the vectors, if it was set."""
        return (self.options or {}).get("vector_query_combination")
