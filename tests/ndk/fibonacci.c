/* A client of a vendor extension: finds the device that has it, builds a model by its header, computes. */
#include <stdio.h>
#include <stdlib.h>

#include "NeuralNetworks.h"
#include "fibonacci_extension.h"

#define CHECK(call)                                                            \
    do {                                                                       \
        int code = (call);                                                     \
        if (code != ANEURALNETWORKS_NO_ERROR) {                                \
            fprintf(stderr, "%s gave %d\n", #call, code);                      \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum { N = 10 };

static const ANeuralNetworksDevice* find(void) {
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice* device = NULL;
        bool supported = false;
        CHECK(ANeuralNetworks_getDevice(i, &device));
        CHECK(ANeuralNetworksDevice_getExtensionSupport(device, EXAMPLE_FIBONACCI_EXTENSION_NAME, &supported));
        if (supported) return device;
    }
    fprintf(stderr, "no device has " EXAMPLE_FIBONACCI_EXTENSION_NAME "\n");
    exit(1);
}

int main(void) {
    const ANeuralNetworksDevice* device = find();
    ANeuralNetworksModel* model = NULL;
    ANeuralNetworksCompilation* compilation = NULL;
    ANeuralNetworksExecution* execution = NULL;
    const char* name = EXAMPLE_FIBONACCI_EXTENSION_NAME;
    int32_t int64 = 0, quant64 = 0, fibonacci = 0;
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_getExtensionOperandType(model, name, EXAMPLE_INT64, &int64));
    CHECK(ANeuralNetworksModel_getExtensionOperandType(model, name, EXAMPLE_TENSOR_QUANT64_ASYMM, &quant64));
    CHECK(ANeuralNetworksModel_getExtensionOperationType(model, name, EXAMPLE_FIBONACCI, &fibonacci));

    const uint32_t dims[] = {N}, input[] = {0}, output[] = {1};
    const ANeuralNetworksOperandType scalar = {int64, 0, NULL, 0.0f, 0}, tensor = {quant64, 1, dims, 0.0f, 0};
    const ExampleQuant64AsymmParams params = {0.5, 128};
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_setOperandExtensionData(model, 1, &params, sizeof params));
    CHECK(ANeuralNetworksModel_addOperation(model, fibonacci, 1, input, 1, output));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, input, 1, output));
    CHECK(ANeuralNetworksModel_finish(model));
    CHECK(ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));

    const int64_t n = N;
    int64_t numbers[N];
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, &n, sizeof n));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, numbers, sizeof numbers));
    CHECK(ANeuralNetworksExecution_compute(execution));
    for (int i = 0; i < N; i++) printf("%d ", (int)((numbers[i] - params.zeroPoint) * params.scale));
    printf("\n");
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    return 0;
}
