#!/bin/sh
# Make the environment of the peer: sh benchmarks/secagg/setup.sh FOLDER
set -e
folder=${1:?give a folder}
test -x "$folder/flower/bin/python" || python3 -m venv "$folder/flower"
"$folder/flower/bin/pip" install --quiet flwr numpy
