"""Crowd-ML: A privacy-preserving learning framework for a crowd of smart devices (ICDCS 2015)."""

from crowdml.studies.crowdml_2015 import activity, images, soundness
from crowdml.studies.study import Study

STUDIES: dict[str, Study] = {
    "crowdml-2015/fig3": activity.FIG3,
    "crowdml-2015/fig4": images.approaches(images.MNIST),
    "crowdml-2015/fig5": images.privacy(images.MNIST),
    "crowdml-2015/fig5-sound": soundness.price(images.MNIST),
    "crowdml-2015/fig6": images.delays(images.MNIST),
    "crowdml-2015/fig7": images.approaches(images.CIFAR10),
    "crowdml-2015/fig8": images.privacy(images.CIFAR10),
    "crowdml-2015/fig9": images.delays(images.CIFAR10),
}
