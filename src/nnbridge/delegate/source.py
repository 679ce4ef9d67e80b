"""The delegate's C code: TFLite's structures as they lie in memory, the exported functions, what Python needs of C.

Only what is the same from TFLite 2.5 to today is declared. A runtime's registration of operators may be longer than the one
here or shorter: nothing after ``version`` is read, and the one that is passed has spare words, all zero.
"""

from __future__ import annotations

from nnbridge.log_lines.patterns import DELEGATE_NAME

TYPES = """
typedef struct { int size; int data[]; } TfLiteIntArray;
typedef struct { float scale; int32_t zero_point; } TfLiteQuantizationParams;
typedef struct { int type; void* params; } TfLiteQuantization;
typedef struct TfLiteDelegate TfLiteDelegate;
typedef struct TfLiteContext TfLiteContext;

typedef struct {
    int type;
    char* data;
    TfLiteIntArray* dims;
    TfLiteQuantizationParams params;
    int allocation_type;
    size_t bytes;
    const void* allocation;
    const char* name;
    TfLiteDelegate* delegate;
    int buffer_handle;
    bool data_is_stale;
    bool is_variable;
    TfLiteQuantization quantization;
    void* sparsity;
    const TfLiteIntArray* dims_signature;
} TfLiteTensor;

typedef struct {
    TfLiteIntArray* inputs;
    TfLiteIntArray* outputs;
    TfLiteIntArray* intermediates;
    TfLiteIntArray* temporaries;
    void* user_data;
    void* builtin_data;
    const void* custom_initial_data;
    int custom_initial_data_size;
    TfLiteDelegate* delegate;
} TfLiteNode;

typedef struct {
    void* (*init)(TfLiteContext*, const char*, size_t);
    void (*free)(TfLiteContext*, void*);
    int (*prepare)(TfLiteContext*, TfLiteNode*);
    int (*invoke)(TfLiteContext*, TfLiteNode*);
    const char* (*profiling_string)(const TfLiteContext*, const TfLiteNode*);
    int32_t builtin_code;
    const char* custom_name;
    int version;
    void* spare[11];
} TfLiteRegistration;

typedef struct {
    TfLiteDelegate* delegate;
    TfLiteIntArray* nodes_to_replace;
    TfLiteIntArray* input_tensors;
    TfLiteIntArray* output_tensors;
} TfLiteDelegateParams;

struct TfLiteContext {
    size_t tensors_size;
    int (*GetExecutionPlan)(TfLiteContext*, TfLiteIntArray**);
    TfLiteTensor* tensors;
    void* impl_;
    int (*ResizeTensor)(TfLiteContext*, TfLiteTensor*, TfLiteIntArray*);
    void (*ReportError)(TfLiteContext*, const char*, ...);
    int (*AddTensors)(TfLiteContext*, int, int*);
    int (*GetNodeAndRegistration)(TfLiteContext*, int, TfLiteNode**, TfLiteRegistration**);
    int (*ReplaceNodeSubsetsWithDelegateKernels)(TfLiteContext*, TfLiteRegistration, const TfLiteIntArray*, TfLiteDelegate*);
    int recommended_num_threads;
    void* (*GetExternalContext)(TfLiteContext*, int);
    void (*SetExternalContext)(TfLiteContext*, int, void*);
    bool allow_fp32_relax_to_fp16;
    void* profiler;
    int (*AllocatePersistentBuffer)(TfLiteContext*, size_t, void**);
    int (*AllocateBufferForEval)(TfLiteContext*, size_t, void**);
    int (*RequestScratchBufferInArena)(TfLiteContext*, size_t, int*);
    void* (*GetScratchBuffer)(TfLiteContext*, int);
    int (*ResizeTensorExplicit)(TfLiteContext*, TfLiteTensor*, int, const int*);
    int (*PreviewDelegatePartitioning)(TfLiteContext*, const TfLiteIntArray*, TfLiteDelegateParams**, int*);
};

struct TfLiteDelegate {
    void* data_;
    int (*Prepare)(TfLiteContext*, TfLiteDelegate*);
    int (*CopyFromBufferHandle)(TfLiteContext*, TfLiteDelegate*, int, TfLiteTensor*);
    int (*CopyToBufferHandle)(TfLiteContext*, TfLiteDelegate*, int, TfLiteTensor*);
    void (*FreeBufferHandle)(TfLiteContext*, TfLiteDelegate*, int*);
    int64_t flags;
    void* opaque_delegate_builder;
};

typedef struct { uintptr_t number; int count; int* tensors; char** data; size_t* bytes; } NnbridgeKernel;
"""
"""A kernel lists its tensors, and where they lay when it ran last."""

INNER = {
    "nnbridge_create": "uintptr_t nnbridge_create(const char* const*, const char* const*, int, void (*)(const char*))",
    "nnbridge_destroy": "void nnbridge_destroy(uintptr_t)",
    "nnbridge_delegate": "int nnbridge_delegate(TfLiteContext*, TfLiteDelegate*)",
    "nnbridge_init": "uintptr_t nnbridge_init(TfLiteContext*, const TfLiteDelegateParams*)",
    "nnbridge_free": "void nnbridge_free(NnbridgeKernel*)",
    "nnbridge_prepare": "int nnbridge_prepare(TfLiteContext*, TfLiteNode*, NnbridgeKernel*)",
    "nnbridge_invoke": "int nnbridge_invoke(TfLiteContext*, TfLiteNode*, NnbridgeKernel*, bool)",
}
"""The functions that Python defines."""

REFUSALS: dict[str, int | None] = {
    name: None if prototype.startswith("void") else 0 if prototype.startswith("uintptr_t") else 1
    for name, prototype in INNER.items()
}

CALLED_BY_PYTHON = (
    "int nnbridge_replace(TfLiteContext*, const TfLiteIntArray*, TfLiteDelegate*)",
    "void nnbridge_report(TfLiteContext*, const char*)",
    "int nnbridge_resize(TfLiteContext*, int, const int*, int)",
    "TfLiteDelegate* nnbridge_new_delegate(int64_t)",
    "void nnbridge_free_delegate(TfLiteDelegate*)",
)

EXPORTED = f"""
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

static void* kernel_init(TfLiteContext* context, const char* buffer, size_t length) {{
    (void)length;
    return (void*)nnbridge_init(context, (const TfLiteDelegateParams*)buffer);
}}

static void kernel_free(TfLiteContext* context, void* kernel) {{
    (void)context;
    if (kernel != NULL) nnbridge_free((NnbridgeKernel*)kernel);
}}

static int kernel_prepare(TfLiteContext* context, TfLiteNode* node) {{
    return nnbridge_prepare(context, node, (NnbridgeKernel*)node->user_data);
}}

/* Python binds buffers again only when they have moved. */
static int kernel_invoke(TfLiteContext* context, TfLiteNode* node) {{
    NnbridgeKernel* kernel = (NnbridgeKernel*)node->user_data;
    bool moved = kernel == NULL;
    for (int i = 0; kernel != NULL && i < kernel->count; ++i) {{
        const TfLiteTensor* tensor = &context->tensors[kernel->tensors[i]];
        if (kernel->data[i] == tensor->data && kernel->bytes[i] == tensor->bytes) continue;
        kernel->data[i] = tensor->data;
        kernel->bytes[i] = tensor->bytes;
        moved = true;
    }}
    return nnbridge_invoke(context, node, kernel, moved);
}}

static int nnbridge_replace(TfLiteContext* context, const TfLiteIntArray* nodes, TfLiteDelegate* delegate) {{
    TfLiteRegistration registration;
    memset(&registration, 0, sizeof registration);
    registration.init = kernel_init;
    registration.free = kernel_free;
    registration.prepare = kernel_prepare;
    registration.invoke = kernel_invoke;
    registration.custom_name = "{DELEGATE_NAME}";
    registration.version = 1;
    return context->ReplaceNodeSubsetsWithDelegateKernels(context, registration, nodes, delegate);
}}

static void nnbridge_report(TfLiteContext* context, const char* text) {{
    context->ReportError(context, "%s", text);
}}

/* TFLite frees the array of dimensions. */
static int nnbridge_resize(TfLiteContext* context, int tensor, const int* dims, int rank) {{
    TfLiteIntArray* array = malloc(sizeof(TfLiteIntArray) + (size_t)rank * sizeof(int));
    if (array == NULL) return 1;
    array->size = rank;
    memcpy(array->data, dims, (size_t)rank * sizeof(int));
    return context->ResizeTensor(context, &context->tensors[tensor], array);
}}

static TfLiteDelegate* nnbridge_new_delegate(int64_t flags) {{
    TfLiteDelegate* delegate = calloc(1, sizeof(TfLiteDelegate));
    if (delegate == NULL) return NULL;
    delegate->Prepare = nnbridge_delegate;
    delegate->flags = flags;
    return delegate;
}}

static void nnbridge_free_delegate(TfLiteDelegate* delegate) {{
    free(delegate);
}}

#define STRINGIFIED(x) #x
#define NUMBER(x) STRINGIFIED(x)
#define VERSION NUMBER(PY_MAJOR_VERSION) "." NUMBER(PY_MINOR_VERSION) "."

CFFI_DLLEXPORT TfLiteDelegate* tflite_plugin_create_delegate(
    const char* const* keys, const char* const* values, size_t count, void (*report_error)(const char*)) {{
    if (Py_IsInitialized() && strncmp(Py_GetVersion(), VERSION, strlen(VERSION)) != 0) {{
        char text[160];
        snprintf(text, sizeof text, "expected Python " NUMBER(PY_MAJOR_VERSION) "." NUMBER(PY_MINOR_VERSION)
                 ", which built this library, found %.*s. ", (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
        if (report_error != NULL) report_error(text); else fprintf(stderr, "ERROR: %s\\n", text);
        return NULL;
    }}
    if (nnbridge_start() != 0) {{
        if (report_error != NULL) report_error("nnbridge's Python cannot start; standard error has the reason. ");
        return NULL;
    }}
    /* Some wrappers pass the count as an int. */
    uintptr_t delegate = nnbridge_create(keys, values, (int)(uint32_t)count, report_error);
    return (TfLiteDelegate*)delegate;
}}

CFFI_DLLEXPORT void tflite_plugin_destroy_delegate(TfLiteDelegate* delegate) {{
    if (delegate != NULL) nnbridge_destroy((uintptr_t)delegate);
}}
"""
