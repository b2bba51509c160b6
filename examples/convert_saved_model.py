"""A trained file in, a fused file to deploy out, proven against the original.

python examples/convert_saved_model.py trained.h5 served.onnx    # or .keras, .tflite, .savedmodel
"""

import sys

import parallel_fuse

if __name__ == "__main__":
    report = parallel_fuse.convert(sys.argv[1], sys.argv[2])
    print(report.to_text())
