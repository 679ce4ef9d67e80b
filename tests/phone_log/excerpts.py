"""Lines as public reports have them, written for the small files of :mod:`tests.phone_log.files`."""

from __future__ import annotations

from dataclasses import dataclass

from tests.phone_log import files
from tests.phone_log.files import Maker


@dataclass(frozen=True)
class Excerpt:
    """Some lines of a log."""

    report: str
    """The public thread with lines of this form."""
    file: Maker
    log: str
    expected: tuple[tuple[str, str, str], ...]
    """Of each line that is explained: its pattern, the operators that it names, and words of its rule or remedy."""
    device: str = "arm-nn-18.05"


_A, _B = "2020-09-28 10:00:57.698 24378-24378/org.tensorflow.lite.benchmark ", "04-06 10:51:15.403  5771  5771 "
_ORT = "11:36:31.321  V   [V:onnxruntime:ort-java, "
_DYNAMIC = "Attempting to use a delegate that only supports static-sized tensors with a graph that has dynamic-sized tensors"
_PLACED = "I/ExecutionPlan: ModelBuilder::findBestDeviceForEachOperation"

EXCERPTS = (
    Excerpt(
        "tensorflow 43541",
        files.digits,
        f"{_A}{_PLACED}(CONV_2D) = 0 (qti-default)\n{_A}{_PLACED}(DEPTHWISE_CONV_2D) = 0 (qti-default)\n"
        f"{_A}I/ExecutionPlan: Device qti-gpu can't do operation CONV_2D\n{_A}{_PLACED}(CONV_2D) = 0 (qti-default)\n"
        f"{_A}I/ExecutionPlan: ModelBuilder::partitionTheWork: only one best device: 0 = qti-default\n",
        (
            ("placed", "operator 0 CONV_2D", ""),
            ("placed", "operator 1 DEPTHWISE_CONV_2D", ""),
            ("device-refused", "operator 2 CONV_2D", "qti-gpu is not a device of this plan"),
            ("placed", "operator 2 CONV_2D", ""),
            ("one-device", "", ""),
        ),
    ),
    Excerpt(
        "tensorflow 48281",
        files.digits,
        f"{_B}I tflite  : Created TensorFlow Lite delegate for NNAPI.\n{_B}I Manager : DeviceManager::DeviceManager\n"
        f"{_B}I Manager : Found interface armnn (version = 1.1)\n"
        f"{_B}I ExecutionPlan: Device arm-nn-18.05 can't do operation CONCATENATION:6\n",
        (
            ("delegate-created", "", "nothing is handed over yet"),
            ("found-device", "", "nnbridge devices find"),
            ("device-refused", "operator 6 CONCATENATION", "arm-nn-18.05 input 0: requires TENSOR_FLOAT32"),
        ),
    ),
    Excerpt(
        "tensorflow 36645",
        files.power,
        "ERROR: NN API returned error ANEURALNETWORKS_BAD_DATA at line 1068 while setting new operand value for tensor "
        "'mlp/Pow/y'.\n",
        (("api-error-tensor", "operator 0 POW", "NNAPI refused a tensor"),),
    ),
    Excerpt(
        "tensorflow 52570",
        files.power,
        "E/tflite: NN API returned error ANEURALNETWORKS_BAD_DATA at line 1465 while setting new operand value from memory "
        "for tensor mlp/Pow.\n",
        (("api-error-tensor", "operator 0 POW", "there is no interpreter"),),
    ),
    Excerpt(
        "tensorflow 51859",
        files.where,
        "2021-09-07 11:28:23.521 20502-20502/com.tv.test E/AndroidRuntime: FATAL EXCEPTION: main\n"
        "    java.lang.RuntimeException: java.lang.IllegalArgumentException: Internal error: Failed to apply delegate: "
        f"{_DYNAMIC} (tensor#1 is a dynamic-sized tensor).\n"
        "        at android.app.ActivityThread.performLaunchActivity(ActivityThread.java:3832)\n",
        (("dynamic-graph", "operator 0 WHERE", "operator 0 WHERE with an output of computed shape"),),
    ),
    Excerpt(
        "tensorflow 38036",
        files.computed_shape,
        f"Caused by: java.lang.IllegalArgumentException: Internal error: Failed to apply delegate: {_DYNAMIC}.\n",
        (("dynamic-graph", "operator 1 RESHAPE", "fix the open dimensions"),),
    ),
    Excerpt(
        "TikTokBoost 16",
        files.computed_shape,
        f"WARNING: {_DYNAMIC} (tensor#-1 is a dynamic-sized tensor).\n",
        (("dynamic-graph", "operator 1 RESHAPE", "operator 1 RESHAPE with an output of computed shape"),),
    ),
    Excerpt(
        "tensorflow 16351",
        files.computed_shape,
        "01-24 03:39:36.393 19136 19153 E AndroidRuntime: java.lang.IllegalArgumentException: Failed to run on the given "
        "Interpreter: NNAPI was requested, but dependent sized tensors being used.\n",
        (("dynamic-graph", "operator 1 RESHAPE", "TFLite refuses the delegate"),),
    ),
    Excerpt(
        "tensorflow 27983",
        files.digits,
        "E/tflite: Op code 25 is currently not delegated to NNAPI\n"
        "E/tflite: Returning error since TFLite returned failure nnapi_delegate.cc:739.\n",
        (("old-not-delegated", "operator 10 SOFTMAX", "use the NNAPI delegate"), ("old-failure", "", "TFLite before 2")),
    ),
    Excerpt(
        "Samsung/ONE 773",
        files.digits,
        "Aborting since NNAPI returned failure nnapi_delegate.cc:1070\n",
        (("old-failure", "", "this plan builds every model of the file"),),
    ),
    Excerpt(
        "tensorflow 24120",
        files.custom,
        "### tflite  : Custom operations are not supported when using NNAPI.\n",
        (("old-custom", "", "TFLite before 2"),),
    ),
    Excerpt(
        "tensorflow 47905",
        files.quantised_pair,
        "WARNING: Operator FAKE_QUANT (v1) refused by NNAPI delegate: Unsupported operation type.\n"
        "WARNING: Operator QUANTIZE (v2) refused by NNAPI delegate: OP Version different from 1\n",
        (
            ("delegate-refused", "operator 3 FAKE_QUANT", '"Unsupported operation type."; this plan: requires'),
            ("delegate-refused", "operator 1 QUANTIZE", '"OP Version different from 1"; this plan'),
        ),
    ),
    Excerpt(
        "tensorflow 56301",
        files.where,
        f"{_B}I tflite  : NNAPI accelerators available: [ipuadaptor,nnapi-reference]\n"
        f"{_B}I tflite  : Though NNAPI delegate is explicitly applied, the model graph will not be executed by the delegate.\n",
        (("accelerators", "", ""), ("benchmark-none", "", "no node was handed to NNAPI")),
    ),
    Excerpt(
        "tensorflow 37242",
        files.custom,
        "java.lang.IllegalStateException: Internal error: Unexpected failure when preparing tensor allocations: "
        "Encountered unresolved custom op: Mean.\n    Node number 1 (Mean) failed to prepare\n",
        (
            ("unresolved-custom", "operator 1 Mean", "register the custom operator"),
            ("node-failed", "operator 1 Mean", "the cause is in the lines before"),
        ),
    ),
    Excerpt(
        "TinyNeuralNetwork 354",
        files.digits,
        "tensorflow/lite/kernels/concatenation.cc:161 t->params.scale != output->params.scale (3 != -1)\n"
        "Node number 6 (CONCATENATION) failed to prepare.\n",
        (
            ("kernel-condition", "operator 6 CONCATENATION", "a condition of TFLite's own kernel"),
            ("node-failed", "operator 6 CONCATENATION", "the cause is in the lines before"),
        ),
    ),
    Excerpt(
        "tensorflow 33231",
        files.custom,
        "java.lang.IllegalArgumentException: Internal error: Cannot create interpreter: Didn't find custom op for name 'Mean' "
        "with version 1\n",
        (("unresolved-custom", "operator 1 Mean", "the file does not load"),),
    ),
    Excerpt(
        "tensorflow 46989",
        files.flex,
        "04-14 09:18:33.912 8903-8903/com.example.posm W/System.err: Regular TensorFlow ops are not supported by this "
        "interpreter. "
        "Make sure you apply/link the Flex delegate before inference.\n",
        (("select-ops", "operator 0 FlexSize", "convert with TFLITE_BUILTINS only"),),
    ),
    Excerpt(
        "LiteRT 3596",
        files.dense_by_unit,
        "E/tflite  (12345): NN API returned error ANEURALNETWORKS_BAD_DATA at line 1144 while adding operation.\n"
        "E/tflite  (12345): Restored original execution plan after delegate application failure.\n",
        (
            ("api-error-build", "operator 1 FULLY_CONNECTED", "requires"),
            ("restored", "operator 1 FULLY_CONNECTED", "nnbridge plan "),
        ),
        "nnapi-sample_all",
    ),
    Excerpt(
        "the lines before, of Android 13",
        files.dense_by_unit,
        "E OperationValidationUtils: NN_RET_CHECK failed (packages/modules/NeuralNetworks/common/types/src/"
        "OperationsValidationUtils.cpp:38): type == expectedTypes[i] Invalid input tensor type TENSOR_QUANT8_SYMM_PER_CHANNEL "
        "for input 1, expected TENSOR_QUANT8_ASYMM_SIGNED\n"
        "E ModelBuilder: Invalid Operation: NN_RET_CHECK failed (packages/modules/NeuralNetworks/common/types/operations/src/"
        "FullyConnected.cpp:120): validateInputTypes(context, inExpectedTypes) \n",
        (
            ("operand-type", "operator 1 FULLY_CONNECTED", "weights: requires TENSOR_QUANT8_ASYMM_SIGNED"),
            ("invalid-operation", "operator 1 FULLY_CONNECTED", "weights: requires TENSOR_QUANT8_ASYMM_SIGNED"),
        ),
        "nnapi-sample_all",
    ),
    Excerpt(
        "tensorflow 60234",
        files.dense_by_unit,
        "2023-04-04 17:24:18.480 19036-19036 ModelBuilder            pid-19036                            E  Invalid Operation: "
        "NN_RET_CHECK failed (packages/modules/NeuralNetworks/common/types/operations/src/FullyConnected.cpp:118): "
        "Unsupported input tensor type for operation FULLY_CONNECTED\n",
        (("invalid-operation", "operator 1 FULLY_CONNECTED", "NNAPI's validation refuses an operation"),),
    ),
    Excerpt(
        "tflite-neuron-delegate 12",
        files.digits,
        "I  Found interface mtk-dsp (version = ACCELERATOR_APUSYS)\n"
        "Internal error: Failed to apply delegate: NN API returned error ANEURALNETWORKS_BAD_DATA at line 4483 while "
        "completing NNAPI "
        "compilation.\n",
        (("found-device", "", ""), ("api-error-compile", "", "the device failed to compile it")),
    ),
    Excerpt(
        "nnstreamer 2755",
        files.digits,
        "2020-09-24 14:07:09.604 6035-6141/? E/Manager: IDevice::getSupportedOperations returned the error GENERAL_FAILURE\n"
        "2020-09-24 14:07:09.604 747-747/? E/audit: type=1400 audit(1600924029.602:144890): avc:  denied  { read } for  pid=6035 "
        'path="/storage/emulated/0/add.tflite" scontext=u:r:hal_neuralnetworks_default:s0 tcontext=u:object_r:sdcardfs:s0\n',
        (
            ("support-failed", "", "the driver failed, not the file"),
            ("access-denied", "", "copy the model into the app's own folder"),
        ),
    ),
    Excerpt(
        "ndk-samples 767",
        files.digits,
        "E/VersionedInterfaces: getSupportedOperations_1_3 failure: Status(EX_TRANSACTION_FAILED): 'FAILED_TRANSACTION: '\n",
        (("support-failed", "", "it supports nothing"),),
    ),
    Excerpt(
        "onnxruntime 5260",
        files.turned,
        "2020-09-22 16:42:45.940 13268-13268/com.play.onnxruntime E/OperationsUtils: NN_RET_CHECK failed "
        "(frameworks/ml/nn/common/OperationsUtils.cpp:111): Operation TRANSPOSE with inputs {TENSOR_FLOAT32, TENSOR_INT32} and "
        "outputs {TENSOR_FLOAT32} is only supported since HAL version 1.1 (validating using HAL version 1.0)\n"
        "2020-09-22 16:42:45.940 13268-13268/com.play.onnxruntime E/Operations: NN_RET_CHECK failed "
        "(frameworks/ml/nn/common/operations/Transpose.cpp:82): validateHalVersion(context, HalVersion::V1_1) \n"
        "2020-09-22 16:42:45.940 13268-13268/com.play.onnxruntime E/Utils: Validation failed for operation TRANSPOSE\n",
        (
            ("only-since-hal", "operator 0 Transpose", "the driver's HAL is older"),
            ("check-failed", "operator 0 Transpose", "a condition of NNAPI's own"),
            ("validation-failed", "operator 0 Transpose", "the rule is in the lines before"),
        ),
    ),
    Excerpt(
        "onnxruntime 12793",
        files.error_function,
        "2022-08-31 11:51:02.455 26842-26979/com.vfi.android V/onnxruntime:  [V:onnxruntime:ort-java, op_support_checker.cc:403 "
        "operator()] Node [Erf_1362] type [Erf] Input [] has no shape\n"
        "2022-08-31 11:51:02.455 26842-26979/com.vfi.android V/onnxruntime:  [V:onnxruntime:ort-java, "
        "nnapi_execution_provider.cc:143 "
        "operator()] Node supported: [0] Operator type: [Erf] index: [917] name: [Erf_1362] as part of the NodeUnit "
        "type: [Erf] index: "
        "[917] name: [Erf_1362]\n",
        (("ort-no-shape", "operator 1 Erf", "make_dynamic_shape_fixed"), ("node-support", "operator 1 Erf", "requires")),
    ),
    Excerpt(
        "onnxruntime 19590",
        files.product,
        f"{_ORT}op_builder_helpers.cc:236 IsSupportedBatchMatMul] Unsupported op type: QDQ MatMul\n"
        f"{_ORT}gemm_op_builder.cc:322 IsOpSupportedImpl] A must be 2D\n"
        f"{_ORT}nnapi_execution_provider.cc:151 operator()] Node supported: [0] Operator type: [MatMul] index: [1346] name: "
        "[/block.2/wi_1/MatMul] as part of the NodeUnit type: [MatMul] index: [1346] name: [/block.2/wi_1/MatMul]\n",
        (
            ("ort-qdq-matmul", "operator 1 MatMul", "nodes_to_exclude"),
            ("ort-rank-2", "operator 1 MatMul", "Reshape to two dimensions"),
            ("node-support", "operator 1 MatMul", ""),
        ),
    ),
    Excerpt(
        "onnxruntime 14419",
        files.product,
        "01-19 18:32:33.396 16761 16761 V onnxruntime:  [V:onnxruntime:, nnapi_execution_provider.cc:146 operator()] "
        "Node supported: "
        "[1] Operator type: [Relu] index: [0] name: [/act/Relu] as part of the NodeUnit type: [Relu] index: [0] name: "
        "[/act/Relu]\n",
        (("node-support", "operator 0 Relu", ""),),
    ),
    Excerpt(
        "onnxruntime 16224",
        files.turned,
        "Caused by: ai.onnxruntime.OrtException: Error code - ORT_FAIL - message: model_builder.cc:457 "
        "AddOperandFromPersistMemoryBuffer ResultCode: ANEURALNETWORKS_BAD_DATA\n",
        (("ort-api-error", "", "there is no session"),),
    ),
    Excerpt(
        "onnxruntime 13056",
        files.turned,
        "09-21 17:56:41.133 17687 17705 E ModelBuilder: ANeuralNetworksModel_identifyInputsAndOutputs Can't set operand "
        "2 to be an input "
        "or output.  Check that it's not a constant or already an input or output\n",
        (("bad-interface", "", "put an Identity"),),
    ),
    Excerpt(
        "onnxruntime 10660",
        files.turned,
        "terminating with uncaught exception of type Ort::Exception: model_builder.cc:369 RegisterModelOutputs "
        "shape_proto cannot be "
        "null for output: y\n",
        (("ort-no-output-shape", "operator 0 Transpose", "run shape inference"),),
    ),
    Excerpt(
        "onnxruntime 7859",
        files.turned,
        "I/TypeManager: Failed to read /vendor/etc/nnapi_extensions_app_allowlist ; No app allowlisted for vendor "
        "extensions use.\n",
        (("no-allowlist", "", "harmless"),),
    ),
    Excerpt(
        "onnxruntime 11488",
        files.turned,
        "E/onnxruntime:  [E:onnxruntime:, inference_session.cc:1587 operator()] Exception during initialization: "
        "unordered_map::at: key not "
        "found\n",
        (("ort-key", "", "ONNX Runtime created no session"),),
    ),
    Excerpt(
        "sherpa-onnx, a note on Kokoro",
        files.parts,
        "Failed to create session: op_builder_helpers.cc:145 AddNnapiSplit count [0] does not evenly divide dimension 1 [256]\n",
        (("ort-split", "operator 1 Split", "requires num_outputs from opset 18 on"),),
    ),
    Excerpt(
        "a note on yolo11n",
        files.product,
        "W/onnxruntime: NnapiExecutionProvider::GetCapability, number of partitions supported by NNAPI: 62\n"
        "               number of nodes in the graph: 988  number of nodes supported by NNAPI: 197\n",
        (("provider-partitions", "", "copies between them"),),
    ),
    Excerpt(
        "tensorflow 66677",
        files.digits,
        "ERROR: Following operations are not supported by GPU delegate:\nADD: tensor type error\nSPLIT: Operation is not "
        "supported.\n",
        (
            ("gpu-refusals", "", ""),
            ("gpu-operator", "operator 3 ADD", '"tensor type error"'),
            ("gpu-operator", "", "the file has no SPLIT"),
        ),
    ),
    Excerpt(
        "tensorflow 35378",
        files.digits,
        "java.lang.IllegalArgumentException: Internal error: Failed to apply delegate: Next operations are not supported by GPU "
        "delegate:\n    CONCATENATION: Operation is not supported.\n    First 2 operations will run on the GPU, "
        "and the remaining 9 on "
        "the CPU.\n    ModifyGraphWithDelegate is disallowed when graph is immutable.\n",
        (
            ("gpu-refusals", "", ""),
            ("gpu-operator", "operator 6 CONCATENATION", '"Operation is not supported."'),
            ("gpu-share", "", ""),
            ("immutable", "", "one of the delegates"),
        ),
    ),
    Excerpt(
        "tensorflow 60817",
        files.digits,
        "TfLiteGpuDelegate Init: CONCATENATION: Output batch don't match\nTfLiteGpuDelegate Prepare: delegate "
        "is not initialized\n"
        "Node number 6 (CONCATENATION) failed to prepare.\n",
        (
            ("gpu-failed-operator", "operator 6 CONCATENATION", '"Output batch don\'t match"'),
            ("gpu-failed", "operator 6 CONCATENATION", "a batch of 1"),
            ("node-failed", "operator 6 CONCATENATION", ""),
        ),
    ),
    Excerpt(
        "tensorflow 56545",
        files.digits,
        "E/tflite: Following operations are not supported by GPU delegate:\n    SOFTMAX: Max version supported: "
        "2. Requested version 4."
        "\n    357 operations will run on the GPU, and the remaining 1283 operations will run on the CPU.\n",
        (
            ("gpu-refusals", "", ""),
            ("gpu-operator", "operator 10 SOFTMAX", '"Max version supported: 2. Requested version 4."'),
            ("gpu-share", "", ""),
        ),
    ),
    Excerpt(
        "DoanNguyenTrong/object-detection-tflite-cpp 3",
        files.custom,
        "<Unknown severity>: Following operations are not supported by GPU delegate:\n"
        "CUSTOM TFLite_Detection_PostProcess: TFLite_Detection_PostProcess\n"
        "No operations will run on the GPU, and all 64 operations will run on the CPU.\n",
        (
            ("gpu-refusals", "", ""),
            ("gpu-custom", "", "the file has no operator 'TFLite_Detection_PostProcess'"),
            ("gpu-none", "", "this delegate got no operator"),
        ),
    ),
    Excerpt(
        "tensorflow 25131",
        files.digits,
        "WARNING: op code #25 cannot be handled by this delegate.  Only the first 29 ops will run on the GPU, "
        "and the remaining 4 on the "
        "CPU.\nGpuDelegate Prepare: Dimension is empty.\nNode number 3 (ADD) failed to prepare.\n",
        (
            ("old-gpu", "operator 10 SOFTMAX", "by its number"),
            ("gpu-failed", "operator 3 ADD", "fails with these words"),
            ("node-failed", "operator 3 ADD", ""),
        ),
    ),
    Excerpt(
        "tensorflow 31739",
        files.digits,
        "ERROR: TfLiteGpuDelegate Invoke: ConvertToPHWC4: Input data size does not match expected size: 12288000 != 6912\n"
        "ERROR: Node number 7 (CONV_2D) failed to invoke.\n",
        (("gpu-failed", "operator 7 CONV_2D", "a batch of 1"), ("node-failed", "operator 7 CONV_2D", "")),
    ),
    Excerpt(
        "MediaTek-NeuroPilot/tflite-neuron-delegate 12",
        files.digits,
        "I  neuron error: Neuron adapter API exists: 0\nI  Found interface mtk-dsp (version = ACCELERATOR_APUSYS)\n"
        "Internal error: Failed to apply delegate: NN API returned error ANEURALNETWORKS_BAD_DATA at line 4483 "
        "while completing NNAPI "
        "compilation.\n",
        (
            ("neuron-api", "", "goes through NNAPI"),
            ("found-device", "", ""),
            ("api-error-compile", "", "the device failed to compile it"),
        ),
    ),
    Excerpt(
        "tensorflow 43541, Qualcomm's HTA",
        files.digits,
        f"{_A}E/hta-unnhal: {{CONVOLUTION_2D, TENSOR_QUANT8}} is not supported.\n"
        f"{_A}E/hta-unnhal: {{DEPTHWISE_CONVOLUTION_2D, TENSOR_QUANT8}} is not supported.\n",
        (
            ("hta-refused", "operator 0 CONV_2D, operator 2 CONV_2D, operator 7 CONV_2D", "HTA refuses"),
            ("hta-refused", "operator 1 DEPTHWISE_CONV_2D", "nnbridge devices learn"),
        ),
    ),
    Excerpt(
        "onnxruntime 9012",
        files.product,
        "2021-09-09 17:55:25.6299070 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:661 "
        "CreateExecutionProviderInstance] NNAPI "
        "execution provider can only be used to generate ORT format model in this build.\n"
        "2021-09-09 17:55:25.6334821 [E:onnxruntime:, sequential_executor.cc:346 Execute] Non-zero status code "
        "returned while running "
        "Nnapi_4698236792223093385_0 node. Name:'NnapiExecutionProvider_Nnapi_4698236792223093385_0_0' Status "
        "Message: Compute is not "
        "supported in this build.\n",
        (
            ("ort-no-nnapi", "", "has no NNAPI"),
            ("ort-run-failed", "operator 0 Relu, operator 1 MatMul", '"Compute is not supported in this build."'),
        ),
    ),
    Excerpt(
        "onnxruntime 25422",
        files.product,
        "ai.onnxruntime.OrtException: Error code - ORT_FAIL - message: Non-zero status code returned while running "
        "QNN_17163145943253667351_257 node. Name:'QNNExecutionProvider_QNN_17163145943253667351_257_64' Status "
        "Message: QNN graph execute "
        "error. Error code: 6001\n",
        (("ort-run-failed", "", '"QNN graph execute error. Error code: 6001"'),),
    ),
    Excerpt(
        "onnxruntime, a node that fails",
        files.product,
        "[E:onnxruntime:, sequential_executor.cc:346 Execute] Non-zero status code returned while running Relu "
        "node. Name:'/act/Relu' "
        "Status Message: left operand cannot broadcast\n",
        (("ort-run-failed", "operator 0 Relu", '"left operand cannot broadcast"'),),
    ),
)
