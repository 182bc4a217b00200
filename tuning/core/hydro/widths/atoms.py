"""Symbolic sizes: which dimensions of which tensors must be equal, and what they are made of.

An ``Atom`` is one indivisible size. A ``Term`` is a product of atoms, major first (heads x head size). A
``Dim`` is a concatenation of terms (query | key | value). Atoms that turn out equal are united; an atom
that turns out to be a product or a concatenation gets that as its ``definition``. An atom is *fixed* when
data dictates its size (batch, classes, input channels) and a *width* when a weight reads or writes along it.
"""

from dataclasses import dataclass, field
from math import prod

Term = tuple["Atom", ...]
Dim = tuple[Term, ...]

ONE: Dim = ((),)
"""A dimension of size 1: the empty product. It broadcasts."""


class Conflict(Exception):
    """Two sizes are asked to be equal and cannot be; the analysis turns this into an error with a node."""


@dataclass(eq=False)
class Atom:
    """One size. ``count`` marks numbers of heads and of groups, which are divided before what they count."""

    size: int
    fixed: bool = False
    width: bool = False
    count: bool = False
    definition: Dim | None = None
    parent: "Atom | None" = field(default=None, repr=False)


def root(atom: Atom) -> Atom:
    """The representative of all atoms united with this one."""
    while atom.parent is not None:
        if atom.parent.parent is not None:
            atom.parent = atom.parent.parent
        atom = atom.parent
    return atom


def fresh(size: int, *, fixed: bool = False, width: bool = False) -> Dim:
    """A new dimension of its own; size 1 is never more than size 1."""
    return ONE if size == 1 else ((Atom(size, fixed=fixed, width=width),),)


def expand(term: Term) -> Term:
    """The term with products written out and ones dropped; concatenations inside stay one atom."""
    atoms: list[Atom] = []
    for atom in map(root, term):
        if atom.definition is not None and len(atom.definition) == 1:
            atoms.extend(expand(atom.definition[0]))
        elif atom.size != 1:
            atoms.append(atom)
    return tuple(atoms)


def normal(dim: Dim) -> Dim:
    """The dimension with every definition written out; a leading concatenation distributes over its term."""
    terms: list[Term] = []
    for term in map(expand, dim):
        lead = term[0].definition if term else None
        if lead is None:
            terms.append(term)
        else:
            terms.extend(normal(tuple((*part, *term[1:]) for part in lead)))
    return tuple(terms)


def term_size(term: Term) -> int:
    return prod(root(atom).size for atom in term)


def size_of(dim: Dim) -> int:
    return sum(term_size(term) for term in dim)


def leaves(dim: Dim) -> list[Atom]:
    """All indivisible atoms of a dimension."""
    found: list[Atom] = []
    for term in normal(dim):
        for atom in term:
            found.extend([atom] if atom.definition is None else leaves(atom.definition))
    return found


def is_fixed(dim: Dim) -> bool:
    """Whether no part of the dimension can change."""
    return all(atom.fixed for atom in leaves(dim))


def is_width(dim: Dim) -> bool:
    """Whether some part of the dimension is a width, shrunk or not."""
    return any(atom.width and not atom.fixed for atom in leaves(dim))


def fix(dim: Dim) -> None:
    """Data dictates this size."""
    for atom in leaves(dim):
        atom.fixed = True


def widen(dim: Dim) -> None:
    """A weight reads or writes along this dimension."""
    for atom in leaves(dim):
        atom.width = True


def mark_count(dim: Dim) -> None:
    """The dimension is a number of heads or groups."""
    for atom in leaves(dim):
        atom.count = True


def unify(a: Dim, b: Dim) -> None:
    """Make two dimensions equal for ever; raises ``Conflict`` where that is impossible."""
    a, b = normal(a), normal(b)
    if a == b:
        return
    if size_of(a) != size_of(b):
        raise Conflict(f"sizes {size_of(a)} and {size_of(b)} meet")
    if len(a) == 1 and len(b) == 1:
        _unify_terms(a[0], b[0])
    elif _is_plain(a):
        _define(a[0][0], b)
    elif _is_plain(b):
        _define(b[0][0], a)
    elif len(a) == 1 or len(b) == 1:
        repeated, product = (a, b) if len(b) == 1 else (b, a)
        unify(as_product(repeated), product)
    else:
        _unify_concatenations(list(a), list(b))


def as_product(dim: Dim) -> Dim:
    """A concatenation of equal parts, seen as (number of parts) x (part)."""
    dim = normal(dim)
    if len(dim) == 1:
        return dim
    if len({term_size(term) for term in dim}) != 1:
        raise Conflict("a concatenation of unequal parts is used as a product")
    for term in dim[1:]:
        unify((dim[0],), (term,))
    return ((Atom(len(dim), fixed=True), *dim[0]),)


def split_product(dim: Dim, sizes: list[int]) -> list[Dim]:
    """Cut a dimension into factors of these sizes, major first."""
    remaining = list(expand(as_product(dim)[0]))
    parts: list[Dim] = []
    for size in sizes:
        part: list[Atom] = []
        while (have := term_size(tuple(part))) < size and remaining:
            atom = remaining.pop(0)
            if size % (have * atom.size) == 0:
                part.append(atom)
                continue
            wanted = size // have
            if size % have or atom.size % wanted:
                raise Conflict(f"a size of {atom.size} is cut into {wanted} parts")
            major, minor = _factor(atom, wanted)
            part.append(major)
            remaining.insert(0, minor)
        parts.append((tuple(part),))
    return parts


def split_sum(dim: Dim, sizes: list[int]) -> list[Dim]:
    """Cut a dimension into consecutive pieces of these sizes."""
    remaining = list(normal(dim))
    pieces: list[Dim] = []
    for size in sizes:
        piece: list[Term] = []
        missing = size
        while missing > 0:
            term = remaining.pop(0)
            if term_size(term) > missing:
                first, rest = _cut(term, missing)
                remaining[:0] = [rest]
                term = first
            piece.append(term)
            missing -= term_size(term)
        pieces.append(tuple(piece) or ((Atom(0, fixed=True),),))
    return pieces


def _is_plain(dim: Dim) -> bool:
    return len(dim) == 1 and len(dim[0]) == 1 and dim[0][0].definition is None


def _define(atom: Atom, dim: Dim) -> None:
    if any(leaf is atom for leaf in leaves(dim)):
        raise Conflict("a size is defined by itself")
    if atom.fixed:
        fix(dim)
    if atom.width:
        widen(dim)
    atom.definition = dim


def _unify_terms(a: Term, b: Term) -> None:
    left, right = list(a), list(b)
    while left and right:
        x, y = left.pop(0), right.pop(0)
        if x.size == y.size:
            _unite(x, y)
        elif x.size > y.size and x.size % y.size == 0:
            major, minor = _factor(x, y.size)
            _unite(major, y)
            left.insert(0, minor)
        elif y.size > x.size and y.size % x.size == 0:
            major, minor = _factor(y, x.size)
            _unite(x, major)
            right.insert(0, minor)
        else:
            raise Conflict(f"factors {x.size} and {y.size} do not nest")
        left, right = list(expand(tuple(left))), list(expand(tuple(right)))


def _unify_concatenations(a: list[Term], b: list[Term]) -> None:
    while a and b:
        x, y = a.pop(0), b.pop(0)
        if term_size(x) > term_size(y):
            x, rest = _cut(x, term_size(y))
            a.insert(0, rest)
        elif term_size(y) > term_size(x):
            y, rest = _cut(y, term_size(x))
            b.insert(0, rest)
        unify((x,), (y,))


def _unite(x: Atom, y: Atom) -> None:
    x, y = root(x), root(y)
    if x is y:
        return
    if x.definition is not None and y.definition is not None:
        unify(x.definition, y.definition)
    if x.definition is None and y.definition is not None:
        x, y = y, x
    fixed, width, count = x.fixed or y.fixed, x.width or y.width, x.count or y.count
    y.parent = x
    x.fixed, x.width, x.count = fixed, width, count
    if x.definition is not None:
        for flag, mark in ((fixed, fix), (width, widen)):
            if flag:
                mark(x.definition)


def _factor(atom: Atom, major: int) -> tuple[Atom, Atom]:
    """Define an atom as ``major`` x the rest."""
    if atom.definition is not None:
        raise Conflict(f"a concatenation of size {atom.size} is cut into {major} parts")
    pair = tuple(
        Atom(size, fixed=atom.fixed, width=atom.width, count=atom.count)
        for size in (major, atom.size // major)
    )
    atom.definition = (pair,)
    return pair[0], pair[1]


def _cut(term: Term, first: int) -> tuple[Term, Term]:
    """Cut a term after its first ``first`` entries."""
    lead, *rest = expand(term)
    block = term_size(tuple(rest))
    if first % block or lead.definition is not None:
        raise Conflict(f"a width made of factors is cut at {first}, inside a factor")
    sizes = (first // block, lead.size - first // block)
    a, b = (Atom(size, fixed=lead.fixed, width=lead.width, count=lead.count) for size in sizes)
    lead.definition = ((a,), (b,))
    return (a, *rest), (b, *rest)
