/* A client that opens the library itself and misuses it: each argument is a check, "all refused" the end of all. */
#define _GNU_SOURCE
#include "NeuralNetworks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* library;
#define CALL(name) ((__typeof__(&ANeuralNetworks##name))dlsym(library, "ANeuralNetworks" #name))
#define EXPECT(code, call)                                                       \
    do {                                                                         \
        int found = (call);                                                      \
        if (found != (code)) {                                                   \
            fprintf(stderr, "%s gave %d instead of %d\n", #call, found, code);   \
            return 1;                                                            \
        }                                                                        \
    } while (0)

static const uint32_t dims[2] = {1, 4};
static const ANeuralNetworksOperandType tensor = {ANEURALNETWORKS_TENSOR_FLOAT32, 2, dims, 0, 0};
static const ANeuralNetworksOperandType scalar = {ANEURALNETWORKS_INT32, 0, NULL, 0, 0};
static float one[4] = {1, 2, 3, 4}, two[4] = {1, 1, 1, 1};

static ANeuralNetworksModel* model(void) {
    ANeuralNetworksModel* made = NULL;
    const int32_t none = 0;
    const uint32_t inputs[3] = {0, 1, 2}, output = 3;
    CALL(Model_create)(&made);
    CALL(Model_addOperand)(made, &tensor);
    CALL(Model_addOperand)(made, &tensor);
    CALL(Model_addOperand)(made, &scalar);
    CALL(Model_addOperand)(made, &tensor);
    CALL(Model_setOperandValue)(made, 2, &none, sizeof none);
    CALL(Model_addOperation)(made, ANEURALNETWORKS_ADD, 3, inputs, 1, &output);
    CALL(Model_identifyInputsAndOutputs)(made, 2, inputs, 1, &output);
    return made;
}

static ANeuralNetworksCompilation* compilation(const char* cache) {
    ANeuralNetworksModel* made = model();
    ANeuralNetworksCompilation* compiled = NULL;
    const uint8_t token[32] = {0};
    CALL(Model_finish)(made);
    CALL(Compilation_create)(made, &compiled);
    if (cache != NULL) CALL(Compilation_setCaching)(compiled, cache, token);
    CALL(Compilation_finish)(compiled);
    return compiled;
}

static int computed(ANeuralNetworksCompilation* compiled) {
    ANeuralNetworksExecution* execution = NULL;
    float sum[4] = {0};
    CALL(Execution_create)(compiled, &execution);
    CALL(Execution_setInput)(execution, 0, NULL, one, sizeof one);
    CALL(Execution_setInput)(execution, 1, NULL, two, sizeof two);
    CALL(Execution_setOutput)(execution, 0, NULL, sum, sizeof sum);
    const int code = CALL(Execution_compute)(execution);
    CALL(Execution_free)(execution);
    return code != 0 ? code : sum[3] == 5 ? 0 : -1;
}

static int lengths(void) {
    ANeuralNetworksModel* made = model();
    ANeuralNetworksExecution* execution = NULL;
    const ANeuralNetworksOperandType endless = {ANEURALNETWORKS_TENSOR_FLOAT32, 0xFFFFFFFFu, dims, 0, 0};
    const uint32_t index = 0;
    EXPECT(4, CALL(Model_setOperandValue)(made, 0, one, (size_t)-1));
    EXPECT(4, CALL(Model_setOperandValue)(made, 0, one, (size_t)1 << 32));
    EXPECT(4, CALL(Model_addOperand)(made, &endless));
    EXPECT(4, CALL(Model_addOperation)(made, ANEURALNETWORKS_ADD, 0xFFFFFFFFu, &index, 1, &index));
    EXPECT(0, CALL(Execution_create)(compilation(NULL), &execution));
    EXPECT(4, CALL(Execution_setInput)(execution, 0, NULL, one, (size_t)-1));
    EXPECT(4, CALL(Execution_setOutput)(execution, 0, NULL, one, (size_t)-1));
    return 0;
}

static int dependencies(void) {
    ANeuralNetworksExecution* execution = NULL;
    ANeuralNetworksEvent* event = (void*)1;
    EXPECT(0, CALL(Execution_create)(compilation(NULL), &execution));
    EXPECT(3, CALL(Execution_startComputeWithDependencies)(execution, NULL, 5, 0, &event));
    EXPECT(1, event == NULL);
    return 0;
}

static void* computes(void* compiled) {
    for (;;) computed(compiled);
    return NULL;
}

static int forks(void) {
    ANeuralNetworksCompilation* compiled = compilation(NULL);
    pthread_t thread;
    for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, computes, compiled);
    usleep(200000);
    for (int i = 0; i < 5; i++) {
        int status;
        const pid_t child = fork();
        if (child == 0) {
            alarm(30);
            _exit(computed(compilation(NULL)));
        }
        waitpid(child, &status, 0);
        EXPECT(0, status);
    }
    return 0;
}

int main(int count, char** arguments) {
    int failed = 0;
    library = dlopen("libneuralnetworks.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
    for (int i = 1; i < count; i++) {
        uint32_t devices = 0;
        if (strcmp(arguments[i], "lengths") == 0) failed |= lengths();
        else if (strcmp(arguments[i], "dependencies") == 0) failed |= dependencies();
        else if (strcmp(arguments[i], "forks") == 0) failed |= forks();
        else if (strcmp(arguments[i], "start") == 0) EXPECT(0, CALL(_getDeviceCount)(&devices));
        else if (strcmp(arguments[i], "compute") == 0) EXPECT(0, computed(compilation(NULL)));
        else compilation(arguments[i]); /* a folder for the cache */
    }
    if (!failed) printf("all refused\n");
    fflush(stdout);
    _exit(failed);
}
