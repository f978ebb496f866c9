"""Digits as a hand draws them: strokes on a sheet of 100 × 100, and other hands' versions of them."""

from __future__ import annotations

import math
import random

Stroke = list[tuple[float, float]]


def _arc(x: float, y: float, wide: float, tall: float, begin: float, end: float) -> Stroke:
    turns = [math.radians(begin + (end - begin) * step / 24) for step in range(25)]
    return [(round(x + wide * math.cos(turn), 3), round(y + tall * math.sin(turn), 3)) for turn in turns]


DIGITS: list[list[Stroke]] = [
    [_arc(50, 50, 28, 40, -90, 270)],
    [[(35, 28), (52, 10), (52, 90)]],
    [[*_arc(50, 32, 25, 22, 190, 380), (28, 88), (78, 88)]],
    [[*_arc(46, 30, 22, 20, 200, 450), *_arc(46, 70, 24, 20, -90, 160)]],
    [[(60, 10), (25, 62), (80, 62)], [(60, 35), (60, 92)]],
    [[(74, 12), (36, 12), (32, 46), *_arc(48, 65, 26, 24, -120, 150)]],
    [[(62, 8), (40, 34), *_arc(50, 70, 22, 20, 200, 560)]],
    [[(26, 12), (76, 12), (44, 90)], [(36, 50), (70, 50)]],
    [[*_arc(50, 28, 18, 18, 90, 450), *_arc(50, 70, 20, 22, -90, 270)]],
    [[*_arc(50, 32, 22, 20, 0, 360), (72, 32), (66, 90)]],
]
"""One way to draw each digit."""


def another_hand(digit: int, seed: int) -> list[Stroke]:
    """Draw a digit wider or narrower, leaning, and less steadily."""
    draws = random.Random(seed)
    wide, leaning = draws.uniform(0.6, 1.1), draws.uniform(-0.15, 0.15)
    return [
        [(wide * (x + leaning * (50 - y)) + draws.gauss(0, 1), y + draws.gauss(0, 1)) for x, y in stroke]
        for stroke in DIGITS[digit]
    ]
