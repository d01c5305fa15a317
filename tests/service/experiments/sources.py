"""Evidence kept by hand, for whoever reports it."""

from service.experiments.evidence import Evidence


class ByHand:
    """An evidence source; `asked` counts how often evidence was read."""

    def __init__(self, *evidences: Evidence) -> None:
        self._known = {one.experiment: one for one in evidences}
        self.asked = 0

    async def evidence(self, name: str) -> Evidence | None:
        self.asked += 1
        return self._known.get(name)

    async def names(self) -> list[str]:
        return sorted(self._known)
