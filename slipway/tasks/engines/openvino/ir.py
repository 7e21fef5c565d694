"""Names in OpenVINO IR that every step of this kind uses."""

MODEL = "openvino_model.xml"
KV_CACHE_PRECISION = {"none": "f16", "int8": "u8"}
"""The CPU plugin's names. The IR states the choice, because the plugin's own default is 8 bit."""
