"""Attacks by name, for simulated crowds. A new one is a class in a file beside these and a line below."""

from crowdml.algorithms.attacks.contract import FORGED as FORGED
from crowdml.algorithms.attacks.contract import Attack as Attack
from crowdml.algorithms.attacks.contract import AttackSettings as AttackSettings
from crowdml.algorithms.attacks.informed import Adaptive, Alie, InnerProduct, Sign
from crowdml.algorithms.attacks.simple import LabelFlip, NoAttack, Noise
from crowdml.core import Registry

ATTACKS: Registry[type[AttackSettings]] = Registry(
    "attack",
    {
        "none": NoAttack,
        "label-flip": LabelFlip,
        "sign": Sign,
        "noise": Noise,
        "alie": Alie,
        "inner-product": InnerProduct,
        "adaptive": Adaptive,
    },
)
