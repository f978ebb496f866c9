#!/bin/sh
# Make the environments of the peers, each its own: sh benchmarks/fedavg/setup.sh FOLDER
set -e
folder=${1:?give a folder}
for peer in torch pfl flower; do
  test -x "$folder/$peer/bin/python" || python3 -m venv "$folder/$peer"
done
"$folder/torch/bin/pip" install --quiet torch==2.13.0 numpy
"$folder/pfl/bin/pip" install --quiet "pfl[pytorch]" torch==2.13.0 numpy
"$folder/flower/bin/pip" install --quiet "flwr[simulation]==1.41.0" numpy
