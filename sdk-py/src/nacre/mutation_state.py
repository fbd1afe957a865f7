"""Mutations that queries and scans must reflect."""

from collections.abc import Iterator

from .exceptions import MissingTokenException
from .result import MutationResult, MutationToken

__all__ = ["MutationState", "MutationToken"]


class MutationState:
    """Mutation tokens, of which the newest one for each vBucket counts."""

    def __init__(self, *results: MutationResult) -> None:
        self._newest: dict[tuple[str, int], MutationToken] = {}
        if results:
            self.add_results(*results)

    def add_mutation_token(self, token: MutationToken) -> None:
        """Adds a mutation."""
        place = (token.bucket_name, token.partition_id)
        known = self._newest.get(place)
        if known is None or known.sequence_number <= token.sequence_number:
            self._newest[place] = token

    def add_results(self, *results: MutationResult, quiet: bool = False) -> bool:
        """Adds the mutations of results. With ``quiet``, returns False if one has no token.

        Raises:
            MissingTokenException: if a result has no token.
        """
        for result in results:
            token = result.mutation_token()
            if token is not None:
                self.add_mutation_token(token)
            elif quiet:
                return False
            else:
                raise MissingTokenException("a result has no mutation token")
        if not results:
            raise MissingTokenException("there are no results")
        return True

    def __iter__(self) -> Iterator[MutationToken]:
        return iter(self._newest.values())

    def scan_vectors(self) -> dict[str, dict[str, list[int | str]]]:
        """Returns the tokens in the query service's format: seqno and vBucket UUID by bucket and
        vBucket.
        """
        vectors: dict[str, dict[str, list[int | str]]] = {}
        for token in self:
            place = vectors.setdefault(token.bucket_name, {})
            place[str(token.partition_id)] = [token.sequence_number, str(token.partition_uuid)]
        return vectors
