/* A client that knows NNAPI alone: builds a model, compiles it for a named device, computes in every way, from 8 threads. */
#define _GNU_SOURCE /* memfd_create */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "NeuralNetworks.h"

#define CHECK(call)                                                            \
    do {                                                                       \
        int code = (call);                                                     \
        if (code != ANEURALNETWORKS_NO_ERROR) {                                \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, code); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)
#define EXPECT(condition)                                                      \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum { COUNT = 200, BYTES = COUNT * sizeof(float), THREADS = 8, ROUNDS = 20 };

static float weights[COUNT];
static ANeuralNetworksCompilation* compilation;

static ANeuralNetworksModel* build(void) {
    ANeuralNetworksModel* model = NULL;
    const uint32_t dims[] = {COUNT};
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, dims, 0.0f, 0};
    const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0.0f, 0};
    const int32_t none = ANEURALNETWORKS_FUSED_NONE;
    const uint32_t inputs[] = {0, 1, 2}, outputs[] = {3};
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_addOperand(model, &scalar));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    CHECK(ANeuralNetworksModel_setOperandValue(model, 1, weights, BYTES));
    CHECK(ANeuralNetworksModel_setOperandValue(model, 2, &none, sizeof none));
    CHECK(ANeuralNetworksModel_addOperation(model, ANEURALNETWORKS_ADD, 3, inputs, 1, outputs));
    CHECK(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, inputs, 1, outputs));
    CHECK(ANeuralNetworksModel_finish(model));
    return model;
}

static const ANeuralNetworksDevice* find(const char* wanted) {
    uint32_t count = 0;
    CHECK(ANeuralNetworks_getDeviceCount(&count));
    for (uint32_t i = 0; i < count; i++) {
        ANeuralNetworksDevice* device = NULL;
        const char* name = NULL;
        CHECK(ANeuralNetworks_getDevice(i, &device));
        CHECK(ANeuralNetworksDevice_getName(device, &name));
        if (strcmp(name, wanted) == 0) return device;
    }
    fprintf(stderr, "no device %s\n", wanted);
    exit(1);
}

static void compute(int way, const float* input, float* output, ANeuralNetworksBurst* burst) {
    ANeuralNetworksExecution* execution = NULL;
    ANeuralNetworksEvent* event = NULL;
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setInput(execution, 0, NULL, input, BYTES));
    CHECK(ANeuralNetworksExecution_setOutput(execution, 0, NULL, output, BYTES));
    switch (way) {
        case 0: CHECK(ANeuralNetworksExecution_compute(execution)); break;
        case 1:
            CHECK(ANeuralNetworksExecution_startCompute(execution, &event));
            CHECK(ANeuralNetworksEvent_wait(event));
            break;
        case 2: CHECK(ANeuralNetworksExecution_burstCompute(execution, burst)); break;
        default:
            CHECK(ANeuralNetworksExecution_startComputeWithDependencies(execution, NULL, 0, 0, &event));
            CHECK(ANeuralNetworksEvent_wait(event));
    }
    ANeuralNetworksEvent_free(event);
    ANeuralNetworksExecution_free(execution);
}

static void* work(void* argument) {
    const int thread = (int)(intptr_t)argument;
    float input[COUNT], output[COUNT];
    ANeuralNetworksBurst* burst = NULL;
    CHECK(ANeuralNetworksBurst_create(compilation, &burst));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) input[i] = (float)(thread + round + i);
        memset(output, 0, sizeof output);
        compute(round % 4, input, output, burst);
        for (int i = 0; i < COUNT; i++) EXPECT(output[i] == input[i] + weights[i]);
    }
    ANeuralNetworksBurst_free(burst);
    return NULL;
}

static void through_memory(void) {
    const int fd = memfd_create("client", 0);
    EXPECT(fd >= 0 && ftruncate(fd, 2 * BYTES) == 0);
    float* shared = mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ANeuralNetworksMemory* memory = NULL;
    ANeuralNetworksExecution* execution = NULL;
    for (int i = 0; i < COUNT; i++) shared[i] = (float)i;
    CHECK(ANeuralNetworksMemory_createFromFd(2 * BYTES, PROT_READ | PROT_WRITE, fd, 0, &memory));
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    CHECK(ANeuralNetworksExecution_setInputFromMemory(execution, 0, NULL, memory, 0, BYTES));
    CHECK(ANeuralNetworksExecution_setOutputFromMemory(execution, 0, NULL, memory, BYTES, BYTES));
    CHECK(ANeuralNetworksExecution_compute(execution));
    for (int i = 0; i < COUNT; i++) EXPECT(shared[COUNT + i] == shared[i] + weights[i]);
    ANeuralNetworksExecution_free(execution);
    ANeuralNetworksMemory_free(memory);
    munmap(shared, 2 * BYTES);
    close(fd);
}

static void errors(ANeuralNetworksModel* model) {
    ANeuralNetworksExecution* execution = NULL;
    uint32_t rank = 0;
    EXPECT(ANeuralNetworksModel_create(NULL) == ANEURALNETWORKS_UNEXPECTED_NULL);
    EXPECT(ANeuralNetworksModel_finish(NULL) == ANEURALNETWORKS_UNEXPECTED_NULL);
    EXPECT(ANeuralNetworksModel_finish(model) == ANEURALNETWORKS_BAD_STATE);
    EXPECT(ANeuralNetworksModel_finish((ANeuralNetworksModel*)0x10) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksExecution_create((ANeuralNetworksCompilation*)model, &execution) == ANEURALNETWORKS_BAD_DATA);
    CHECK(ANeuralNetworksExecution_create(compilation, &execution));
    EXPECT(ANeuralNetworksExecution_setInput(execution, 0, NULL, weights, 4) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksExecution_setInput(execution, 0, NULL, NULL, 4) == ANEURALNETWORKS_UNEXPECTED_NULL);
    EXPECT(ANeuralNetworksExecution_compute(execution) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksExecution_getOutputOperandRank(execution, 0, &rank) == ANEURALNETWORKS_BAD_STATE);
    ANeuralNetworksExecution_free(execution);
    EXPECT(ANeuralNetworksExecution_compute(execution) == ANEURALNETWORKS_BAD_DATA);
}

/* An array without a count and a count without an array are refused, whatever the function. */
static void arrays_and_counts(void) {
    ANeuralNetworksModel* model = NULL;
    const uint32_t dims[] = {COUNT}, zero = 0;
    const float scale = 1.0f;
    const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL, 1, dims, 0.0f, 0};
    const ANeuralNetworksOperandType no_array = {ANEURALNETWORKS_TENSOR_FLOAT32, 1, NULL, 0.0f, 0};
    const ANeuralNetworksOperandType no_count = {ANEURALNETWORKS_TENSOR_FLOAT32, 0, dims, 0.0f, 0};
    const ANeuralNetworksSymmPerChannelQuantParams no_scales = {0, COUNT, NULL}, no_scale_count = {0, 0, &scale};
    CHECK(ANeuralNetworksModel_create(&model));
    CHECK(ANeuralNetworksModel_addOperand(model, &tensor));
    EXPECT(ANeuralNetworksModel_addOperand(model, &no_array) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_addOperand(model, &no_count) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &no_scales) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(model, 0, &no_scale_count) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_setOperandValue(model, 0, dims, 0) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_addOperation(model, 10000, 0, NULL, 1, &zero) == ANEURALNETWORKS_UNEXPECTED_NULL);
    EXPECT(ANeuralNetworksModel_addOperation(model, 10000, 0, &zero, 1, &zero) == ANEURALNETWORKS_BAD_DATA);
    EXPECT(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &zero, 0, NULL) == ANEURALNETWORKS_UNEXPECTED_NULL);
    EXPECT(ANeuralNetworksModel_identifyInputsAndOutputs(model, 1, &zero, 0, &zero) == ANEURALNETWORKS_BAD_DATA);
    ANeuralNetworksModel_free(model);
}

int main(int argc, char** argv) {
    EXPECT(argc == 2);
    for (int i = 0; i < COUNT; i++) weights[i] = 0.5f * (float)i;
    ANeuralNetworksModel* model = build();
    const ANeuralNetworksDevice* device = find(argv[1]);
    bool supported = false;
    CHECK(ANeuralNetworksModel_getSupportedOperationsForDevices(model, &device, 1, &supported));
    EXPECT(supported);
    CHECK(ANeuralNetworksCompilation_createForDevices(model, &device, 1, &compilation));
    CHECK(ANeuralNetworksCompilation_finish(compilation));
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void*)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    through_memory();
    errors(model);
    arrays_and_counts();
    ANeuralNetworksCompilation_free(compilation);
    ANeuralNetworksModel_free(model);
    puts("all computed");
    return 0;
}
