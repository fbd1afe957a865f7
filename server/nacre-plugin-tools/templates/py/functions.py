"""A function for queries: ``initials("Ada King Lovelace")`` is ``"AKL"``.

Equal arguments give equal results: there is no state, no clock and no chance.
"""

from nacre_plugin import Functions, export


@export
class Names(Functions):
    name = "{{name}}"

    def initials(self, text: str) -> str:
        return "".join(word[0] for word in text.split())
