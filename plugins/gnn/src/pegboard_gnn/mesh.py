"""Triangle meshes: made bodies, whether they are surfaces, and what lives on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from pegboard import Context, Splits
from torch import Generator, Tensor

from .data_configs import Meshes
from .graphs import Graph
from .made_graphs import graph_splits

Faces = Sequence[Sequence[int]]


def mesh_edges(faces: Faces) -> list[tuple[int, int]]:
    """Every edge of polygons once, the smaller corner first."""
    around = ((face[i], face[(i + 1) % len(face)]) for face in faces for i in range(len(face)))
    return sorted({(min(a, b), max(a, b)) for a, b in around})


def euler(faces: Faces) -> int:
    """Corners - edges + faces: 2 for a sphere, 0 for a torus."""
    corners = {corner for face in faces for corner in face}
    return len(corners) - len(mesh_edges(faces)) + len(faces)


def flaws(faces: Faces) -> list[str]:
    """Why polygons are no surface, in words; nothing where they are one."""
    found, owners = [], defaultdict(list)
    for number, face in enumerate(faces):
        if len(set(face)) < 3 or len(set(face)) != len(face):
            found.append(
                f"face {number} has corners {', '.join(map(str, face))}, expected three different ones"
            )
        for i in range(len(face)):
            a, b = face[i], face[(i + 1) % len(face)]
            owners[min(a, b), max(a, b)].append(number)
    for (a, b), faces_here in sorted(owners.items()):
        if len(faces_here) > 2:
            found.append(f"edge {a}-{b} is in {len(faces_here)} faces, expected two at most")
    return found or _torn(faces)


def _torn(faces: Faces) -> list[str]:
    """Corners whose faces do not hang together, as the tip of two cones."""
    around: dict[int, list[set[int]]] = defaultdict(list)
    for face in faces:
        for i, corner in enumerate(face):
            around[corner].append({face[i - 1], face[(i + 1) % len(face)]})
    found = []
    for corner, pairs in sorted(around.items()):
        joined, rest = pairs[0], pairs[1:]
        while touching := [pair for pair in rest if pair & joined]:
            rest = [pair for pair in rest if not pair & joined]
            joined = joined.union(*touching)
        if rest:
            found.append(f"the faces at corner {corner} do not hang together")
    return found


def octahedron() -> tuple[Tensor, list[list[int]]]:
    """Corners (6, 3) and eight faces."""
    corners = torch.cat((torch.eye(3), -torch.eye(3)))
    sides = [[a, b, c] for a in (0, 3) for b in (1, 4) for c in (2, 5)]
    # Counter-clockwise as seen from outside: a mirrored side is turned around.
    return corners, [side[::-1] if sum(corner >= 3 for corner in side) % 2 else side for side in sides]


def torus(around: int, through: int, thickness: float = 0.4) -> tuple[Tensor, list[list[int]]]:
    """Corners and triangles of a torus that is a grid in two angles."""
    u, v = _angles(around, through)
    ring = 1 + thickness * v.cos()
    corners = torch.stack((ring * u.cos(), ring * u.sin(), thickness * v.sin()), 1)
    return corners, _triangles(around, through, closed=True)


def sheet(rows: int, columns: int) -> tuple[Tensor, list[list[int]]]:
    """Corners and triangles of a flat piece of paper."""
    a, b = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, columns), indexing="ij")
    flat = torch.stack((a.flatten(), b.flatten(), torch.zeros(rows * columns)), 1)
    return flat, _triangles(rows, columns, closed=False)


def bent(corners: Tensor, angle: float) -> Tensor:
    """A flat sheet folded by an angle at each of its lines: every triangle keeps its shape."""
    lines, number = torch.unique(corners[:, 0], sorted=True, return_inverse=True)
    turns = angle * torch.arange(len(lines) - 1, dtype=corners.dtype)
    steps = lines.diff()
    begin = torch.zeros(1, dtype=corners.dtype)
    along = torch.cat((begin, (steps * turns.cos()).cumsum(0)))
    up = torch.cat((begin, (steps * turns.sin()).cumsum(0)))
    return torch.stack((along[number], corners[:, 1], up[number]), 1)


def lengths(corners: Tensor, edges: Tensor) -> Tensor:
    """The length of every edge: (edges,)."""
    found: Tensor = torch.linalg.vector_norm(corners[edges[0]] - corners[edges[1]], dim=1)
    return found


def areas(corners: Tensor, faces: Faces) -> Tensor:
    """The area of every triangle, of corners in two or three dimensions."""
    if corners.shape[1] == 2:
        corners = torch.cat((corners, torch.zeros_like(corners[:, :1])), 1)
    a, b, c = (corners[torch.tensor([face[i] for face in faces])] for i in range(3))
    found: Tensor = torch.linalg.vector_norm(torch.linalg.cross(b - a, c - a), dim=1) / 2
    return found


def normals(corners: Tensor, faces: Faces) -> Tensor:
    """The normal at every corner: that of its faces, the large ones more."""
    numbers = torch.tensor([list(face) for face in faces])
    a, b, c = (corners[numbers[:, i]] for i in range(3))
    each = torch.linalg.cross(b - a, c - a)
    summed = torch.zeros_like(corners)
    for i in range(3):
        summed = summed.index_add(0, numbers[:, i], each)
    found: Tensor = summed / torch.linalg.vector_norm(summed, dim=1, keepdim=True)
    return found


def field_index(corners: Tensor, faces: Faces, field: Tensor) -> tuple[Tensor, float]:
    """How often a field of tangents (corners, 3) turns around in each face, and the sum over all.

    Where it turns there is a place without a direction. The sum is Euler's number, whatever the field: 2 on a
    sphere, so that every field has such a place.
    """
    normal = normals(corners, faces)
    helper = torch.eye(3, dtype=corners.dtype)[normal.abs().argmin(1)]
    first = torch.linalg.cross(normal, helper)
    first = first / first.norm(dim=1, keepdim=True)
    second = torch.linalg.cross(normal, first)

    def direction(at: Tensor, vector: Tensor) -> Tensor:
        return torch.atan2((vector * second[at]).sum(1), (vector * first[at]).sum(1))

    def principal(angle: Tensor) -> Tensor:
        return torch.atan2(angle.sin(), angle.cos())

    numbers = torch.tensor([list(face) for face in faces])
    turned = curved = torch.zeros(len(numbers), dtype=corners.dtype)
    for i in range(3):
        a, b = numbers[:, i], numbers[:, (i + 1) % 3]
        edge = corners[b] - corners[a]
        carried = direction(b, edge) - direction(a, edge)  # what a direction becomes along the edge
        turned = turned + principal(direction(b, field[b]) - direction(a, field[a]) - carried)
        curved = curved + carried
    # Around a face a direction comes back turned by its curvature.
    found = (turned + principal(curved)) / (2 * torch.pi)
    return found, float(found.sum())


def sphere(halvings: int) -> tuple[Tensor, list[list[int]]]:
    """Corners and triangles of a sphere: an octahedron whose faces are cut into four again and again."""
    corners, faces = octahedron()
    points = [tuple(p) for p in corners.tolist()]
    for _ in range(halvings):
        middle: dict[tuple[int, int], int] = {}
        for a, b in mesh_edges(faces):
            between = (torch.tensor(points[a]) + torch.tensor(points[b])) / 2
            middle[a, b] = len(points)
            points.append(tuple((between / between.norm()).tolist()))
        cut = []
        for a, b, c in faces:
            ab, bc, ca = (middle[min(p), max(p)] for p in ((a, b), (b, c), (c, a)))
            cut += [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
        faces = cut
    return torch.tensor(points), faces


def cube(halvings: int) -> tuple[Tensor, list[list[int]]]:
    """The same on the surface of a cube."""
    corners, faces = sphere(halvings)
    return corners / corners.abs().amax(1, keepdim=True), faces


def _angles(around: int, through: int) -> tuple[Tensor, Tensor]:
    u = 2 * torch.pi * torch.arange(around) / around
    v = 2 * torch.pi * torch.arange(through) / through
    grid_u, grid_v = torch.meshgrid(u, v, indexing="ij")
    return grid_u.flatten(), grid_v.flatten()


def _triangles(rows: int, columns: int, closed: bool) -> list[list[int]]:
    """Two triangles for every square of a grid, around both ways where it is closed."""
    faces = []
    for i in range(rows if closed else rows - 1):
        for j in range(columns if closed else columns - 1):
            a, b = i * columns + j, i * columns + (j + 1) % columns
            c, d = (i + 1) % rows * columns + j, (i + 1) % rows * columns + (j + 1) % columns
            faces += [[a, b, c], [b, d, c]]
    return faces


def rotations(count: int, generator: Generator) -> Tensor:
    """Random rotations (count, 3, 3), all alike likely."""
    q, r = torch.linalg.qr(torch.randn(count, 3, 3, generator=generator))
    q = q * torch.sign(torch.diagonal(r, dim1=1, dim2=2)).unsqueeze(1)
    found: Tensor = q * torch.sign(torch.linalg.det(q)).view(-1, 1, 1)
    return found


def meshes(config: Meshes, context: Context) -> Splits:
    """Noisy, turned copies of bodies: corners as nodes, and the step along every edge as its features."""
    generator = torch.Generator().manual_seed(config.seed)
    fine = max(config.resolution // 3, 1)
    made = {
        "sphere": lambda: sphere(fine), "cube": lambda: cube(fine),
        "torus": lambda: torus(2 * config.resolution, config.resolution),
        "sheet": lambda: sheet(config.resolution, config.resolution),
    }  # fmt: skip
    bodies = [made[name]() for name in config.bodies]
    target = torch.arange(config.graphs) % len(bodies)
    turns = rotations(config.graphs, generator) if config.turned else torch.eye(3).repeat(config.graphs, 1, 1)
    graphs = []
    for number, turn in zip(target.tolist(), turns, strict=True):
        corners, faces = bodies[number]
        pairs = torch.tensor(mesh_edges(faces)).T
        edges = torch.cat((pairs, pairs.flip(0)), 1)
        moved = corners @ turn + config.noise * torch.randn(corners.shape, generator=generator)
        graphs.append(Graph(moved, edges, moved[edges[0]] - moved[edges[1]]))
    return graph_splits(graphs, target, len(bodies), context)
