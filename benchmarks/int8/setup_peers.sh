#!/bin/sh
# The environments of the peers that benchmarks/int8 compares with:
#
#     sh benchmarks/int8/setup_peers.sh VENV [PYTHON]
#
# VENV gets onnxruntime, nncf and openvino; VENV/modelopt and VENV/neural-compressor the two peers that pin
# other versions of onnx and onnxruntime. PYTHON (default python3) is 3.11. About 4 GB with the CPU build of
# torch, which pip must be able to find (else it takes the CUDA build: 5 GB more). A peer that does not
# install is a row with the reason in the benchmarks, so that a failure here stops nothing.
set -u
if [ $# -lt 1 ]; then
    sed -n '2,4p' "$0"
    exit 2
fi
venv=$1
python=${2:-python3}

install() { # FOLDER PACKAGE...
    folder=$1
    shift
    "$python" -m venv "$folder" && "$folder/bin/python" -m pip install --quiet "$@" || echo "$folder: failed" >&2
}

# quant_pre_process of onnxruntime imports sympy and does not declare it.
install "$venv" onnxruntime==1.32.0 sympy nncf==3.4.0 openvino==2026.4.1 onnx==1.21.0 pillow psutil
# modelopt wants onnxruntime-gpu 1.24, which runs on the CPU too, and imports torch.
install "$venv/modelopt" torch==2.13.0 'nvidia-modelopt[onnx]==0.47.0' pillow psutil
# The last release with ONNX. It does not declare six, and reads onnx.mapping, which later releases of onnx lack.
install "$venv/neural-compressor" neural-compressor==3.7.1 six onnx==1.16.2 onnxruntime==1.18.1 pillow psutil
