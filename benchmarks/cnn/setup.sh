#!/bin/sh
# Make the environment of the peer: sh benchmarks/cnn/setup.sh FOLDER
set -e
folder=${1:?give a folder}
test -x "$folder/torch/bin/python" || python3 -m venv "$folder/torch"
"$folder/torch/bin/pip" install --quiet torch==2.13.0 numpy
