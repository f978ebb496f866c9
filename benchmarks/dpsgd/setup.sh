#!/bin/sh
# Make the environment of the peers: sh benchmarks/dpsgd/setup.sh FOLDER
set -e
folder=${1:?give a folder}
test -x "$folder/opacus/bin/python" || python3 -m venv "$folder/opacus"
"$folder/opacus/bin/pip" install --quiet torch==2.13.0 opacus==1.5.4 numpy
