"""newton: steps that know the curvature, from everybody's squares of rows; and least squares in one round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crowdml.algorithms.contract import ServerPart
from crowdml.algorithms.device_parts.local_solver import as_matrix, as_parameters
from crowdml.algorithms.device_parts.moments import Moments, above_zero
from crowdml.algorithms.server_parts.step import Tail
from crowdml.core import Array, CheckIn, Coins, Ops, Report, Tree, record, tree_record, trees
from crowdml.privacy.sanitisers import Sanitiser


@tree_record
class NewtonState:
    """The server's state in both phases.

    Attributes:
        parameters: The model.
        matrix: M, along whose inverse steps are taken.
        version: Commits so far.
        tail: The mean of versions, or `()`.
        squares: Sum of everybody's squares of rows.
        window: Sum of gradients since the last commit.
        rows: Rows behind it.
    """

    parameters: Tree
    matrix: Array
    version: Array
    tail: Tree
    squares: Array
    window: Tree
    rows: Array


@record
class Newton(ServerPart):
    """w ← w - η·M⁻¹·(mean gradient + λw).

    Attributes:
        model: First parameters, and the regulariser.
        moments: Shape of the squares.
        sanitiser: Reads check-ins.
        rate: η.
        regularisation: λ.
        tail: The mean of versions.
        ops: Array operations.
    """

    model: Any
    moments: Moments
    sanitiser: Sanitiser
    rate: Array
    regularisation: Array
    tail: Tail
    ops: Ops

    def init(self, coins: Coins) -> NewtonState:
        """Begin with no squares."""
        xp, first = self.ops.xp, self.model.init(coins)
        return NewtonState(
            parameters=first,
            matrix=xp.eye(self.moments.features, dtype=xp.float32),
            version=xp.int32(0),
            tail=self.tail.empty(first),
            squares=xp.zeros(self.moments.size, dtype=xp.float32),
            window=self.model.zeros(),
            rows=xp.float32(0),
        )

    def absorb(self, server: NewtonState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Sum gradients."""
        update, weight = self.sanitiser.read(
            check_in, lambda: self.model.regulariser(server.parameters, self.regularisation)
        )
        window = trees.map(lambda total, leaf: total + leaf, server.window, update)
        return replace(server, window=window, rows=server.rows + weight.astype(self.ops.xp.float32)), row

    def commit(self, server: NewtonState) -> tuple[Tree, Tree]:
        """Take the step."""
        xp = self.ops.xp
        slope = trees.map(lambda total: total / xp.maximum(server.rows, xp.float32(1)), server.window)
        way = self.ops.solve(server.matrix, as_matrix(slope, self.ops).T).T
        moved = as_matrix(server.parameters, self.ops) - self.rate * way
        new, version = as_parameters(moved, server.parameters), server.version + xp.int32(1)
        tail = self.tail.add(server.tail, new, version)
        after = replace(server, parameters=new, version=version, tail=tail)
        return replace(after, window=self.model.zeros(), rows=xp.float32(0)), {}

    def report(self, server: NewtonState) -> Report:
        """Show the model, or the mean of its last versions."""
        return Report(parameters=self.tail.model(server.tail, server.parameters))


@record
class Curvature(ServerPart):
    """M = h·A + ν·I of everybody's squares, where A is their mean without negative eigenvalues.

    Attributes:
        newton: What goes on with the matrix; both have one state.
        sanitiser: Reads check-ins.
        curvature: h: a typical second derivative of the loss.
        floor: ν.
    """

    newton: Newton
    sanitiser: Sanitiser
    curvature: Array
    floor: Array

    def init(self, coins: Coins) -> NewtonState:
        """Begin."""
        return self.newton.init(coins)

    def absorb(self, server: NewtonState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Sum squares."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        rows = server.rows + weight.astype(self.newton.ops.xp.float32)
        return replace(server, squares=server.squares + update, rows=rows), row

    def commit(self, server: NewtonState) -> tuple[Tree, Tree]:
        """Make the matrix."""
        ops, moments = self.newton.ops, self.newton.moments
        xp = ops.xp
        mean = moments.matrix(server.squares) / xp.maximum(server.rows, xp.float32(1))
        curved = above_zero(mean, ops) * self.curvature
        matrix = curved + self.floor * xp.eye(moments.features, dtype=xp.float32)
        return replace(server, matrix=matrix, version=server.version + xp.int32(1), rows=xp.float32(0)), {}


LEAST_RIDGE = 1e-6
"""Ridge on a constant that is not penalised, per row: noise may leave nothing else that could be inverted."""


@tree_record
class LeastSquaresState:
    """The model, commits so far, the sum of everybody's moments, and the rows behind it."""

    parameters: Tree
    version: Array
    total: Array
    rows: Array


@record
class LeastSquares(ServerPart):
    """(A + ν·n·I) w = b, where A is the sum of squares without negative eigenvalues and b that of rows times targets.

    Attributes:
        model: The model, of one layer with one output.
        moments: Shape of the moments.
        sanitiser: Reads check-ins.
        floor: ν.
        ops: Array operations.
        free_constant: Whether ν spares the last number, a constant; `LEAST_RIDGE` is left of it.
    """

    model: Any
    moments: Moments
    sanitiser: Sanitiser
    floor: Array
    ops: Ops
    free_constant: bool = False

    def init(self, coins: Coins) -> LeastSquaresState:
        """Begin at zero."""
        xp = self.ops.xp
        return LeastSquaresState(
            parameters=self.model.zeros(),
            version=xp.int32(0),
            total=xp.zeros(self.moments.size, dtype=xp.float32),
            rows=xp.float32(0),
        )

    def absorb(self, server: LeastSquaresState, row: Tree, check_in: CheckIn, staleness: Array) -> tuple[Tree, Tree]:
        """Sum moments."""
        update, weight = self.sanitiser.read(check_in, lambda: None)
        rows = server.rows + weight.astype(self.ops.xp.float32)
        return replace(server, total=server.total + update, rows=rows), row

    def commit(self, server: LeastSquaresState) -> tuple[Tree, Tree]:
        """Solve."""
        xp = self.ops.xp
        squares = above_zero(self.moments.matrix(server.total), self.ops)
        rows = xp.maximum(server.rows, xp.float32(1))
        ridge = self.floor * rows
        if self.free_constant:
            inner = np.arange(self.moments.features) < self.moments.features - 1
            matrix = squares + xp.diag(xp.where(inner, ridge, xp.float32(LEAST_RIDGE) * rows))
        else:
            matrix = squares + ridge * xp.eye(self.moments.features, dtype=xp.float32)
        found = self.ops.solve(matrix, self.moments.cross(server.total)[:, None]).T
        parameters = as_parameters(found, server.parameters)
        return replace(server, parameters=parameters, version=server.version + xp.int32(1)), {}
