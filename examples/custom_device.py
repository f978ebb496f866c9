"""A device of your own. Its rows come from any Python function: here one that reads a file, yours may ask a sensor.

python examples/custom_device.py 'https://SERVER/join/TASK#…' my-device rows.csv
"""

import csv
import sys

import crowdml

invite, home, file = sys.argv[1:]


def rows():
    """Return what this device knows now, as pairs of numbers and label. It is called before every release."""
    with open(file, newline="") as stream:
        for *numbers, label in csv.reader(stream):
            yield [float(number) for number in numbers], label


crowdml.Device.join(invite, home, accept=lambda offer: print(offer.explain().promise) is None)
with crowdml.Device(home) as device:
    print(device.run(rows, releases=3))
