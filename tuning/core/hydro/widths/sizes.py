"""Choosing the new sizes: every width by the same ratio, heads and groups before what they count."""

from math import ceil

from tuning.core.hydro.widths.atoms import Atom, Dim, Term, leaves, normal, root, size_of


class Sizes:
    """The size of every dimension after shrinking by ``scaling``.

    ``totals`` are the dimensions that weight matrices read and write. A plain width becomes
    ``ceil(width / scaling)``. In a product such as heads x head size, the number of heads (or groups) is
    divided first, by the largest divisor that fits, and the head size by what remains, rounded up: attention
    then keeps its head size where it can, and its logits their scale.
    """

    def __init__(self, totals: list[Dim], scaling: float) -> None:
        self.scaling = scaling
        self._new: dict[Atom, int] = {}
        terms = [_scalable(term) for dim in totals for term in normal(dim)]
        for term in terms:
            if len(term) == 1 and not term[0].count:
                self._shrink(term[0], scaling)
        for term in sorted((term for term in terms if term), key=_counts, reverse=True):
            self._divide(term)

    def new(self, dim: Dim) -> int:
        """The dimension's size in the surrogate."""
        return sum(self._new_term(term) for term in normal(dim))

    def old(self, dim: Dim) -> int:
        """The dimension's size in the target."""
        return size_of(dim)

    def ratio(self, dim: Dim) -> float:
        """The real ratio target / surrogate, 1 for what data fixes."""
        return self.old(dim) / self.new(dim)

    def changes(self, dim: Dim) -> bool:
        return any(self._size(atom) != atom.size for atom in leaves(dim))

    def groups(self, channels: Dim, groups: int) -> int:
        """Fewer normalisation groups of about the target's size: the largest divisor of the new width."""
        width = self.new(channels)
        wanted = max(1.0, groups * width / self.old(channels))
        return max(d for d in range(1, width + 1) if width % d == 0 and d <= wanted + 1e-9)

    def _new_term(self, term: Term) -> int:
        size = 1
        for atom in term:
            size *= self.new(atom.definition) if atom.definition is not None else self._size(atom)
        return size

    def _size(self, atom: Atom) -> int:
        atom = root(atom)
        if atom.fixed or not atom.width:
            return atom.size
        if atom not in self._new:
            self._shrink(atom, self.scaling)
        return self._new[atom]

    def _shrink(self, atom: Atom, ratio: float) -> float:
        if atom not in self._new:
            self._new[atom] = max(1, ceil(atom.size / ratio - 1e-9))
        return atom.size / self._new[atom]

    def _divide(self, term: Term) -> None:
        remaining = self.scaling
        for atom in term:
            if atom in self._new:
                remaining /= atom.size / self._new[atom]
        open_atoms = [atom for atom in term if atom not in self._new]
        for atom in sorted(open_atoms, key=lambda item: (not item.count, item.size)):
            if not atom.count:
                continue
            divisor = max(d for d in range(1, atom.size + 1) if atom.size % d == 0 and d <= remaining + 1e-9)
            self._new[atom] = atom.size // divisor
            remaining /= divisor
        plain = sorted((atom for atom in open_atoms if not atom.count), key=lambda item: -item.size)
        for atom in plain:
            remaining /= self._shrink(atom, max(1.0, remaining))


def _scalable(term: Term) -> Term:
    return tuple(
        atom for atom in map(root, term) if atom.width and not atom.fixed and atom.definition is None
    )


def _counts(term: Term) -> int:
    return sum(atom.count for atom in term)
