"""Drawing of scenes as arrays of bytes, with smooth edges, varying backgrounds and a little noise.

Everything is a function of the scene's description. A shape covers a pixel according to the distance of the pixel's
centre from the shape's edge: fully from half a pixel inside on, and not at all from half a pixel outside on.
"""

# h w height and width, both the picture's side · n corners of a polygon
import functools
import hashlib
import math
import random
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float32, UInt8

if TYPE_CHECKING:
    from regard_corpora.scenes import Scene, Shape

RGB = {
    "red": (205, 45, 45),
    "green": (50, 150, 60),
    "blue": (50, 85, 205),
    "yellow": (232, 205, 45),
    "purple": (140, 55, 165),
    "orange": (235, 130, 35),
}
NOISE = 5


def draw(scene: "Scene", side: int) -> UInt8[np.ndarray, "h w 3"]:
    """Draw the picture of a scene."""
    look = random.Random(hashlib.blake2b(scene.description.encode(), digest_size=16).digest())
    light = look.random() < 0.5
    picture = background(look, side, light)
    for shape in scene.shapes:
        colour = np.array([value + look.uniform(-18, 18) for value in RGB[shape.colour]], np.float32)
        rows, columns, distance = around(shape, side, scale_of(scene, shape))
        blend(picture[rows, columns], colour, distance)
        if shape.ringed:
            ink = np.full(3, 15 if light else 240, np.float32)
            blend(picture[rows, columns], ink, ring(shape, side, rows, columns))
    noise = np.frombuffer(look.randbytes(picture.size), np.uint8).reshape(picture.shape)
    picture += noise.astype(np.float32) * ((2 * NOISE + 1) / 256) - NOISE
    return np.clip(picture, 0, 255).astype(np.uint8)


def scale_of(scene: "Scene", shape: "Shape") -> float:
    """Return the factor by which a shape is drawn larger or smaller than the standard for its size, 0.92 to 1.08."""
    digest = hashlib.blake2b(f"{scene.description} {' '.join(shape.words)}".encode(), digest_size=2).digest()
    return 0.92 + 0.16 * int.from_bytes(digest, "big") / 65535


def background(look: random.Random, side: int, light: bool) -> Float32[np.ndarray, "h w 3"]:
    """Draw a background: light or dark, almost grey, brighter towards one side."""
    ground = look.uniform(185, 225) if light else look.uniform(25, 65)
    tint = np.array([ground + look.uniform(-8, 8) for _ in range(3)], np.float32)
    slopes = [look.uniform(-18, 18) for _ in range(2)]
    ramp = (np.arange(side, dtype=np.float32) + 0.5) / side - 0.5
    return tint + (slopes[0] * ramp[:, None] + slopes[1] * ramp)[..., None]


def blend(part: Float32[np.ndarray, "h w 3"], colour: Float32[np.ndarray, " 3"], distance: np.ndarray) -> None:
    """Blend a colour into part of a picture, weighted by each pixel's coverage, which follows from its distance."""
    covered = np.clip(0.5 - distance, 0, 1)[..., None]
    part += covered * (colour - part)


def around(shape: "Shape", side: int, scale: float) -> tuple[slice, slice, Float32[np.ndarray, "h w"]]:
    """Return the rows and columns around a shape, and each pixel's distance outside of it, in pixels."""
    rows, columns, y, x = window(shape, side)
    radius = shape.radius * scale * side / 100
    if shape.kind == "circle":
        return rows, columns, np.sqrt(x * x + y * y) - np.float32(radius)
    return rows, columns, from_polygon(x, y, corners(shape.kind) * np.float32(radius))


def ring(shape: "Shape", side: int, rows: slice, columns: slice) -> Float32[np.ndarray, "h w"]:
    """Return each pixel's distance outside of the ring around a shape, in pixels."""
    _, _, y, x = window(shape, side)
    radius, half = (shape.reach - 1.5) * side / 100, max(0.6, 1.1 * side / 100)
    return np.abs(np.sqrt(x * x + y * y) - np.float32(radius)) - np.float32(half)


def window(shape: "Shape", side: int) -> tuple[slice, slice, Float32[np.ndarray, "h 1"], Float32[np.ndarray, "1 w"]]:
    """Return the rows and columns that a shape may touch, and the centres of their pixels relative to the shape's."""
    corners = []
    for at in (shape.y, shape.x):
        centre, reach = at * side / 100, shape.reach * side / 100
        low, high = max(0, math.floor(centre - reach)), min(side, math.ceil(centre + reach) + 1)
        corners.append((slice(low, high), np.arange(low, high, dtype=np.float32) + np.float32(0.5 - centre)))
    return corners[0][0], corners[1][0], corners[0][1][:, None], corners[1][1][None, :]


@functools.cache
def corners(kind: str) -> Float32[np.ndarray, "n 2"]:
    """Return the corners (x, y) of a polygon around its centre, in order."""
    if kind == "square":
        points = [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)]
    elif kind == "triangle":
        points = [(0.0, -1.05), (0.98, 0.72), (-0.98, 0.72)]
    elif kind == "star":
        turns = [(math.pi * i / 5, 1.1 if i % 2 == 0 else 0.44) for i in range(10)]
        points = [(radius * math.sin(turn), -radius * math.cos(turn)) for turn, radius in turns]
    else:
        a, b = 0.33, 1.0
        points = [(a, b), (a, a), (b, a), (b, -a), (a, -a), (a, -b), (-a, -b), (-a, -a), (-b, -a), (-b, a), (-a, a)]
        points.append((-a, b))
    return np.round(np.array(points), 6).astype(
        np.float32
    )  # rounded, as sines may differ in the last bit between machines


def from_polygon(x: np.ndarray, y: np.ndarray, points: Float32[np.ndarray, "n 2"]) -> Float32[np.ndarray, "h w"]:
    """Return each pixel's distance from a polygon, negative inside."""
    here, there = points[:, :, None, None], np.roll(points, -1, 0)[:, :, None, None]
    along = there - here
    px, py = x - here[:, 0], y - here[:, 1]
    part = np.clip((px * along[:, 0] + py * along[:, 1]) / (along[:, 0] ** 2 + along[:, 1] ** 2), 0, 1)
    away = ((px - part * along[:, 0]) ** 2 + (py - part * along[:, 1]) ** 2).min(0)
    # A ray to the right crosses the outline an odd number of times if it starts inside.
    spans = (here[:, 1] > y) != (there[:, 1] > y)
    with np.errstate(divide="ignore", invalid="ignore"):
        crosses = spans & (x < here[:, 0] + along[:, 0] * (py / along[:, 1]))
    return np.where(crosses.sum(0) % 2, -np.sqrt(away), np.sqrt(away))


def mask_of(scene: "Scene", i: int, side: int) -> Bool[np.ndarray, "h w"]:
    """Return the mask of the pixels whose centres are inside shape i, without its ring."""
    mask = np.zeros((side, side), bool)
    rows, columns, distance = around(scene.shapes[i], side, scale_of(scene, scene.shapes[i]))
    mask[rows, columns] = distance < 0
    return mask


def box_of(scene: "Scene", i: int, side: int) -> tuple[int, int, int, int]:
    """Return the bounding box of shape i's pixels: left, top, right, bottom, the last two just outside."""
    rows, columns, distance = around(scene.shapes[i], side, scale_of(scene, scene.shapes[i]))
    down, across = np.nonzero((distance < 0).any(1))[0], np.nonzero((distance < 0).any(0))[0]
    left, top = columns.start + int(across[0]), rows.start + int(down[0])
    return left, top, columns.start + int(across[-1]) + 1, rows.start + int(down[-1]) + 1
