/* A C program without Python of its own: a stand-in for TFLite's interpreter that runs a file of one ABS through the delegate.

   host LIBRARY MODEL.tflite OFFSET_OF_X OFFSET_OF_Y: the offsets are those of the tensors' names in the file. Prints
   "computed" and ends with 0 if a wrong option is refused and the answers are right, from a second thread, too. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int size; int data[4]; } IntArray;
typedef struct Delegate Delegate;
typedef struct Context Context;

typedef struct {
    int type;
    void* data;
    IntArray* dims;
    float scale;
    int32_t zero_point;
    int allocation_type;
    size_t bytes;
    const void* allocation;
    const char* name;
    void* rest[5];
    const IntArray* dims_signature;
} Tensor;

typedef struct { IntArray *inputs, *outputs, *intermediates, *temporaries; void* user_data; void* rest[5]; } Node;

typedef struct {
    void* (*init)(Context*, const char*, size_t);
    void (*free)(Context*, void*);
    int (*prepare)(Context*, Node*);
    int (*invoke)(Context*, Node*);
    void* profiling;
    int32_t builtin_code;
    const char* custom_name;
    int version;
    void* rest[3];
} Registration;

typedef struct { Delegate* delegate; IntArray *nodes, *inputs, *outputs; } Params;

struct Context {
    size_t tensors_size;
    int (*GetExecutionPlan)(Context*, IntArray**);
    Tensor* tensors;
    void* impl;
    int (*ResizeTensor)(Context*, Tensor*, IntArray*);
    void (*ReportError)(Context*, const char*, ...);
    void* AddTensors;
    int (*GetNodeAndRegistration)(Context*, int, Node**, Registration**);
    int (*Replace)(Context*, Registration, const IntArray*, Delegate*);
    void* between[10];
    int (*Preview)(Context*, const IntArray*, Params**, int*);
    void* rest[6];
};

struct Delegate { void* data; int (*Prepare)(Context*, Delegate*); void* buffers[3]; int64_t flags; void* builder; };

static IntArray plan = {1, {0}}, x_index = {1, {0}}, y_index = {1, {1}}, dims = {2, {2, 3}};
static Node node = {&x_index, &y_index, &plan, &plan, NULL, {NULL}};
static Registration registration = {.builtin_code = 101, .version = 1};
static Params params;

static int get_plan(Context* context, IntArray** found) { (void)context; *found = &plan; return 0; }

static int get_node(Context* context, int index, Node** found, Registration** as) {
    (void)context; (void)index;
    *found = &node;
    *as = &registration;
    return 0;
}

static int preview(Context* context, const IntArray* nodes, Params** found, int* count) {
    (void)context;
    params = (Params){NULL, (IntArray*)nodes, &x_index, &y_index};
    *found = &params;
    *count = nodes->size > 0;
    return 0;
}

static int replace(Context* context, Registration kernel, const IntArray* nodes, Delegate* delegate) {
    params = (Params){delegate, (IntArray*)nodes, &x_index, &y_index};
    if (nodes->size == 0) return 0;
    kernel.builtin_code = 51;
    registration = kernel;
    node.user_data = kernel.init(context, (const char*)&params, 0);
    return 0;
}

static void report(Context* context, const char* format, ...) {
    (void)context;
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
}

static float x[6] = {-1, 2, -3, 4, -5, 6}, y[6];
static Context context;

static void* invoke(void* right) {
    memset(y, 0, sizeof y);
    *(bool*)right = registration.invoke(&context, &node) == 0;
    for (int i = 0; i < 6; ++i) *(bool*)right &= y[i] == i + 1;
    return NULL;
}

#define CHECK(condition) do { if (!(condition)) { fprintf(stderr, "line %d: %s\n", __LINE__, #condition); return 1; } } while (0)

int main(int count, char** arguments) {
    CHECK(count == 5);
    static char file[1 << 16];
    FILE* opened = fopen(arguments[2], "rb");
    CHECK(opened != NULL && fread(file, 1, sizeof file, opened) > 8);
    Tensor tensors[2] = {
        {.type = 1, .data = x, .dims = &dims, .allocation_type = 2, .bytes = sizeof x, .name = file + atoi(arguments[3])},
        {.type = 1, .data = y, .dims = &dims, .allocation_type = 2, .bytes = sizeof y, .name = file + atoi(arguments[4])},
    };
    context = (Context){
        .tensors_size = 2, .tensors = tensors, .GetExecutionPlan = get_plan, .GetNodeAndRegistration = get_node,
        .Replace = replace, .Preview = preview, .ReportError = report,
    };
    void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    Delegate* (*create)(const char* const*, const char* const*, size_t, void (*)(const char*)) =
        (Delegate * (*)(const char* const*, const char* const*, size_t, void (*)(const char*)))
            dlsym(library, "tflite_plugin_create_delegate");
    void (*destroy)(Delegate*) = (void (*)(Delegate*))dlsym(library, "tflite_plugin_destroy_delegate");
    CHECK(create != NULL && destroy != NULL);
    const char *wrong = "no_such_option", *name = "accelerator_name", *value = "nnapi-sample_all";
    CHECK(create(&wrong, &value, 1, NULL) == NULL);
    CHECK(create(NULL, NULL, 0, NULL) != NULL);
    Delegate* delegate = create(&name, &value, 1, NULL);
    CHECK(delegate != NULL && delegate->Prepare(&context, delegate) == 0);
    CHECK(registration.builtin_code == 51);
    CHECK(registration.prepare(&context, &node) == 0);
    bool here, there;
    invoke(&here);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, invoke, &there) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(here && there);
    destroy(delegate);
    registration.free(&context, node.user_data);
    puts("computed");
    return 0;
}
