"""The columns of the Adult dataset.

Categories are those of the public description `adult.names`, ranges those of the published files. They are written
here rather than looked up while loading: what a device does to its rows must not depend on anybody's rows.
"""

from __future__ import annotations

from crowdml.core.records import record


@record
class Numeric:
    """A number, brought into 0..1 by a public range; values outside are cut off."""

    name: str
    low: float
    high: float


@record
class Category:
    """One of a few words: 0 or 1 if there are two, otherwise one column per word."""

    name: str
    words: tuple[str, ...]


def _category(name: str, words: str) -> Category:
    return Category(name=name, words=tuple(words.split()))


COLUMNS: tuple[Numeric | Category, ...] = (
    Numeric(name="age", low=17, high=90),
    _category(
        "workclass",
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    ),
    Numeric(name="fnlwgt", low=12285, high=1490400),
    _category(
        "education",
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool",
    ),
    Numeric(name="education-num", low=1, high=16),
    _category(
        "marital-status",
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    ),
    _category(
        "occupation",
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces",
    ),
    _category("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    _category("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    _category("sex", "Female Male"),
    Numeric(name="capital-gain", low=0, high=99999),
    Numeric(name="capital-loss", low=0, high=4356),
    Numeric(name="hours-per-week", low=1, high=99),
    _category(
        "native-country",
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
        "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands",
    ),
)
LABELS = ("<=50K", ">50K")
