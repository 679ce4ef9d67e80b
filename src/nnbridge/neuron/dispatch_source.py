"""The dispatch library's C code: LiteRT's structures as they lie in memory, its table of functions, and the calls into Python.

Version 0.1.0 of the interface, which ai-edge-litert 2.3 has. Every structure begins with its size and version, which are
checked: another layout is refused with a sentence.
"""

from __future__ import annotations

TYPES = """
typedef struct { uint16_t size, major, minor, reserved; } LiteRtAbi;

typedef struct { int element_type; uint32_t rank; int32_t dims[8]; } LiteRtRankedTensorType;

typedef struct { int fd; const char* base; size_t offset; size_t size; } LiteRtMemBuffer;

typedef struct {
    LiteRtAbi abi;
    int (*create_tensor_buffer_requirements)(int, const int*, size_t, int, const uint32_t*, void**);
    void* others[23];
    int (*get_tensor_buffer_size)(void*, size_t*);
    void* more[2];
    int (*lock_tensor_buffer)(void*, void**, int);
    int (*unlock_tensor_buffer)(void*);
} LiteRtRuntimeContext;
"""
"""Of the runtime's functions those that are called, at bytes 8, 200, 224 and 232."""

INNER = {
    "nnbridge_open": "uintptr_t nnbridge_open(const char*, size_t, const char*, int, int)",
    "nnbridge_close": "void nnbridge_close(uintptr_t)",
    "nnbridge_bytes": "size_t nnbridge_bytes(uintptr_t, bool, int, const LiteRtRankedTensorType*)",
    "nnbridge_compute": "int nnbridge_compute(uintptr_t, char**, const size_t*)",
}
"""The functions that Python defines: 0 for a partition or a size that is none; buffers of inputs, then of outputs."""

REFUSALS: dict[str, int | None] = {"nnbridge_open": 0, "nnbridge_close": None, "nnbridge_bytes": 0, "nnbridge_compute": 3}

EXPORTED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, FAILED = 3, HOST_MEMORY = 1, RANK_BITS = 0x7f, READ = 0, WRITE = 1 };

typedef struct { const LiteRtRuntimeContext* runtime; } Device;

typedef struct {
    const LiteRtRuntimeContext* runtime;
    uintptr_t partition;
    int inputs, outputs;
    void** buffers;  /* attached ones: inputs, then outputs */
    char** addresses;
    size_t* sizes;
} Invocation;

static int initialise(const LiteRtRuntimeContext* runtime, void* environment, void* options) {
    (void)environment; (void)options;
    if (runtime == NULL || runtime->abi.major != 1 || runtime->abi.size < sizeof(LiteRtRuntimeContext)) {
        int major = runtime == NULL ? 0 : runtime->abi.major, size = runtime == NULL ? 0 : runtime->abi.size;
        fprintf(stderr, "nnbridge: expected LiteRT's runtime context of version 1 with at least %zu bytes, ",
                sizeof(LiteRtRuntimeContext));
        fprintf(stderr, "found version %d with %d\\n", major, size);
        return FAILED;
    }
    return nnbridge_start() == 0 ? OK : FAILED;
}

static int vendor(const char** name) { *name = "nnbridge"; return OK; }
static int build(const char** name) { *name = "nnbridge " NNBRIDGE_VERSION; return OK; }
static int capabilities(int* found) { *found = 1; return OK; }
static int accepted(void) { return OK; }

static int create_device(const LiteRtRuntimeContext* runtime, void* options, Device** device) {
    (void)options;
    *device = malloc(sizeof(Device));
    if (*device == NULL) return FAILED;
    (*device)->runtime = runtime;
    return OK;
}

static int destroy_device(Device* device) { free(device); return OK; }

static int requirements(Invocation* at, bool output, int index, const LiteRtRankedTensorType* type, void** found) {
    size_t bytes = nnbridge_bytes(at->partition, output, index, type);
    const int memory[] = {HOST_MEMORY};
    if (bytes == 0) return INVALID;
    return at->runtime->create_tensor_buffer_requirements(1, memory, bytes, 0, NULL, found);
}

static int input_requirements(Invocation* at, int index, const LiteRtRankedTensorType* type, void** found) {
    return requirements(at, false, index, type, found);
}

static int output_requirements(Invocation* at, int index, const LiteRtRankedTensorType* type, void** found) {
    return requirements(at, true, index, type, found);
}

static int register_buffer(Device* device, void* buffer, uint64_t* handle) {
    (void)device;
    *handle = (uint64_t)(uintptr_t)buffer;
    return OK;
}

static int unregister_buffer(Device* device, uint64_t handle) { (void)device; (void)handle; return OK; }

static int destroy(Invocation* at) {
    if (at == NULL) return OK;
    if (at->partition != 0) nnbridge_close(at->partition);
    free(at->buffers);
    free(at->addresses);
    free(at->sizes);
    free(at);
    return OK;
}

static int create(const LiteRtRuntimeContext* runtime, Device* device, int kind, const LiteRtMemBuffer* bytecode,
                  const char* name, int inputs, int outputs, Invocation** found) {
    (void)device; (void)kind;
    size_t count = inputs < 0 || outputs < 0 ? 0 : (size_t)inputs + (size_t)outputs;
    Invocation* at = calloc(1, sizeof(Invocation));
    if (at == NULL || bytecode == NULL || bytecode->base == NULL || count == 0) { free(at); return INVALID; }
    at->runtime = runtime;
    at->inputs = inputs;
    at->outputs = outputs;
    at->buffers = calloc(count, sizeof(void*));
    at->addresses = calloc(count, sizeof(char*));
    at->sizes = calloc(count, sizeof(size_t));
    if (at->buffers != NULL && at->addresses != NULL && at->sizes != NULL)
        at->partition =
            nnbridge_open(bytecode->base + bytecode->offset, bytecode->size, name == NULL ? "" : name, inputs, outputs);
    if (at->partition == 0) { destroy(at); return FAILED; }
    *found = at;
    return OK;
}

static int attach(Invocation* at, int first, int count, int index, void* buffer) {
    if (index < 0 || index >= count) return INVALID;
    at->buffers[first + index] = buffer;
    return OK;
}

static int attach_input(Invocation* at, int index, uint64_t handle) {
    return attach(at, 0, at->inputs, index, (void*)(uintptr_t)handle);
}

static int attach_output(Invocation* at, int index, uint64_t handle) {
    return attach(at, at->inputs, at->outputs, index, (void*)(uintptr_t)handle);
}

static int detach_input(Invocation* at, int index, uint64_t handle) {
    (void)handle;
    return attach(at, 0, at->inputs, index, NULL);
}

static int detach_output(Invocation* at, int index, uint64_t handle) {
    (void)handle;
    return attach(at, at->inputs, at->outputs, index, NULL);
}

static int invoke(Invocation* at) {
    const LiteRtRuntimeContext* runtime = at->runtime;
    int count = at->inputs + at->outputs, locked = 0, status = OK;
    for (; locked < count && status == OK; ++locked) {
        void *buffer = at->buffers[locked], *address = NULL;
        if (buffer == NULL) { status = INVALID; break; }
        status = runtime->get_tensor_buffer_size(buffer, &at->sizes[locked]);
        if (status != OK) break;
        status = runtime->lock_tensor_buffer(buffer, &address, locked < at->inputs ? READ : WRITE);
        if (status != OK) break;
        at->addresses[locked] = address;
    }
    if (status == OK) status = nnbridge_compute(at->partition, at->addresses, at->sizes);
    while (locked > 0) {
        int unlocked = runtime->unlock_tensor_buffer(at->buffers[--locked]);
        if (status == OK) status = unlocked;
    }
    return status;
}

static void* const table[] = {
    initialise, vendor, build, capabilities, create_device, destroy_device, input_requirements, output_requirements,
    register_buffer, unregister_buffer, create, destroy, accepted, attach_input, attach_output, detach_input, detach_output,
    invoke, NULL, NULL, NULL, NULL, NULL, accepted, accepted, NULL,
};

typedef struct { LiteRtAbi abi; int version[3]; int padding; void* const* table; void* more[3]; } LiteRtDispatchApi;

CFFI_DLLEXPORT int LiteRtDispatchGetApi(LiteRtDispatchApi* api) {
    static const LiteRtDispatchApi mine = {{sizeof(LiteRtDispatchApi), 1, 0, 0}, {0, 1, 0}, 0, table, {NULL, NULL, NULL}};
    *api = mine;
    return OK;
}
"""
