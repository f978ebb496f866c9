"""Estimators for scikit-learn: a simulated crowd that is fitted and predicts like any other model."""

from crowdml.sklearn.estimators import CrowdClassifier as CrowdClassifier
from crowdml.sklearn.estimators import CrowdRegressor as CrowdRegressor

__all__ = ["CrowdClassifier", "CrowdRegressor"]
