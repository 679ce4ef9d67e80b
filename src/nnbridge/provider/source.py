"""The provider's C code: ONNX Runtime's structures as they lie in memory, the exported functions, what Python needs of C.

ONNX Runtime's tables of functions are declared by position (:mod:`nnbridge.provider.interface` has the positions that Python
calls). They only grow at their ends, and no signature has changed since 1.23.
"""

from __future__ import annotations

from nnbridge import __version__

API_VERSION = 23
"""The version of ONNX Runtime's interface, 1.23's."""
NAMES = ("NnapiExecutionProvider", "NnbridgeExecutionProvider")
"""Android's name of the provider, and one that ``providers=[...]`` of Python finds, where Android's is reserved."""

TYPES = """
typedef struct OrtEp OrtEp;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;
typedef struct { const void* (*GetApi)(uint32_t); const char* (*GetVersionString)(void); } OrtApiBase;

struct OrtEp {
    uint32_t version;
    const char* (*GetName)(const OrtEp*);
    void* (*GetCapability)(OrtEp*, const void*, void*);
    void* (*Compile)(OrtEp*, const void**, const void**, size_t, OrtNodeComputeInfo**, void**);
    void (*ReleaseNodeComputeInfos)(OrtEp*, OrtNodeComputeInfo**, size_t);
    void* later[40];
    const char* name;
};

struct OrtNodeComputeInfo {
    uint32_t version;
    void* (*CreateState)(OrtNodeComputeInfo*, void*, void**);
    void* (*Compute)(OrtNodeComputeInfo*, void*, void*);
    void (*ReleaseState)(OrtNodeComputeInfo*, void*);
    void* later[12];
};

typedef struct { uint32_t version; bool drop_constant_initializers; void* later[8]; } OrtNodeFusionOptions;
"""

INNER = {
    "nnbridge_create_ep": "void* nnbridge_create_ep(const char*, const void*, const void*, OrtEp**)",
    "nnbridge_release_ep": "void nnbridge_release_ep(OrtEp*)",
    "nnbridge_capability": "void* nnbridge_capability(OrtEp*, const void*, void*)",
    "nnbridge_compile": "void* nnbridge_compile(OrtEp*, const void**, const void**, size_t, OrtNodeComputeInfo**, void**)",
    "nnbridge_release_infos": "void nnbridge_release_infos(OrtEp*, OrtNodeComputeInfo**, size_t)",
    "nnbridge_compute": "void* nnbridge_compute(OrtNodeComputeInfo*, void*, void*)",
    "nnbridge_ready": "int nnbridge_ready(const void*, const char*)",
}
"""The functions that Python defines. Those that return an address return an OrtStatus, NULL for success."""

CALLED_BY_PYTHON = (
    "OrtEp* nnbridge_new_ep(const char*)",
    "OrtNodeComputeInfo* nnbridge_new_info(void)",
    "void nnbridge_free(void*)",
    "void nnbridge_interrupt(void)",
)

EXPORTED = f"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_VERSION {API_VERSION}

struct OrtEpFactory {{
    uint32_t version;
    const char* (*GetName)(const OrtEpFactory*);
    const char* (*GetVendor)(const OrtEpFactory*);
    void* (*GetSupportedDevices)(OrtEpFactory*, const void* const*, size_t, void**, size_t, size_t*);
    void* (*CreateEp)(OrtEpFactory*, const void* const*, const void* const*, size_t, const void*, const void*, OrtEp**);
    void (*ReleaseEp)(OrtEpFactory*, OrtEp*);
    uint32_t (*GetVendorId)(const OrtEpFactory*);
    const char* (*GetVersion)(const OrtEpFactory*);
    void* (*ValidateCompiledModelCompatibilityInfo)(void);
    void* (*CreateAllocator)(OrtEpFactory*, const void*, const void*, void**);
    void (*ReleaseAllocator)(OrtEpFactory*, void*);
    void* (*CreateDataTransfer)(OrtEpFactory*, void**);
    bool (*IsStreamAware)(const OrtEpFactory*);
    void* (*CreateSyncStreamForDevice)(void);
    void* later[24];
    const char* name;
}};

/* Positions in OrtApi and OrtEpApi. */
enum {{
    CREATE_STATUS = 0, CREATE_ENV = 3, RELEASE_ENV = 92, REGISTER_LIBRARY = 301, GET_EP_DEVICES = 303, APPEND_V2 = 304,
    DEVICE_TYPE = 307, DEVICE_EP_NAME = 312, GET_EP_API = 317, CREATE_EP_DEVICE = 0
}};

static void* const* ort;

#define CALL(table, position, type) ((type)(table)[position])

static void* failed(void* const* api, int code, const char* text) {{
    return CALL(api, CREATE_STATUS, void* (*)(int, const char*))(code, text);
}}

/* Python raises an interrupt of a callback once the call that led here has returned to it. */
static __thread bool interrupted;
static void nnbridge_interrupt(void) {{ interrupted = true; }}
static void* passed(void* status) {{
    if (interrupted) PyErr_SetInterrupt();
    interrupted = false;
    return status;
}}

static const char* ep_name(const OrtEp* ep) {{ return ep->name; }}
static const char* factory_name(const OrtEpFactory* factory) {{ return factory->name; }}
static const char* factory_vendor(const OrtEpFactory* factory) {{ (void)factory; return "nnbridge"; }}
static uint32_t factory_vendor_id(const OrtEpFactory* factory) {{ (void)factory; return 0; }}
static const char* factory_version(const OrtEpFactory* factory) {{ (void)factory; return "{__version__}"; }}
static bool is_stream_aware(const OrtEpFactory* factory) {{ (void)factory; return false; }}

/* ONNX Runtime calls these without looking whether they are there. */
static void* no_data_transfer(OrtEpFactory* factory, void** transfer) {{ (void)factory; *transfer = NULL; return NULL; }}
static void* no_allocator(OrtEpFactory* factory, const void* memory, const void* options, void** allocator) {{
    (void)factory; (void)memory; (void)options;
    *allocator = NULL;
    return NULL;
}}
static void release_no_allocator(OrtEpFactory* factory, void* allocator) {{ (void)factory; (void)allocator; }}

/* One device of the provider, on the first CPU: its values are in the CPU's memory. */
static void* supported_devices(OrtEpFactory* factory, const void* const* devices, size_t count,
                               void** found, size_t max, size_t* number) {{
    void* const* ep_api = CALL(ort, GET_EP_API, void* const* (*)(void))();
    *number = 0;
    for (size_t i = 0; i < count && max > 0; ++i) {{
        if (CALL(ort, DEVICE_TYPE, int (*)(const void*))(devices[i]) != 0) continue;
        typedef void* (*CreateEpDevice)(OrtEpFactory*, const void*, const void*, const void*, void**);
        void* status = CALL(ep_api, CREATE_EP_DEVICE, CreateEpDevice)(factory, devices[i], NULL, NULL, &found[0]);
        if (status == NULL) *number = 1;
        return status;
    }}
    return NULL;
}}

static void* create_ep(OrtEpFactory* factory, const void* const* devices, const void* const* metadata, size_t count,
                       const void* options, const void* logger, OrtEp** ep) {{
    (void)devices; (void)metadata; (void)count;
    *ep = NULL;
    return passed(nnbridge_create_ep(factory->name, options, logger, ep));
}}

static void release_ep(OrtEpFactory* factory, OrtEp* ep) {{
    (void)factory;
    nnbridge_release_ep(ep);
}}

/* A state has nothing of its own: several threads compute with the same. */
static void* create_state(OrtNodeComputeInfo* info, void* context, void** state) {{
    (void)context;
    *state = info;
    return NULL;
}}
static void release_state(OrtNodeComputeInfo* info, void* state) {{ (void)info; (void)state; }}

static void* capability(OrtEp* ep, const void* graph, void* info) {{ return passed(nnbridge_capability(ep, graph, info)); }}
static void* compile(OrtEp* ep, const void** graphs, const void** nodes, size_t count, OrtNodeComputeInfo** infos,
                     void** contexts) {{
    return passed(nnbridge_compile(ep, graphs, nodes, count, infos, contexts));
}}
static void* compute(OrtNodeComputeInfo* info, void* state, void* context) {{
    return passed(nnbridge_compute(info, state, context));
}}

static OrtEp* nnbridge_new_ep(const char* name) {{
    OrtEp* ep = calloc(1, sizeof(OrtEp));
    if (ep == NULL) return NULL;
    ep->version = API_VERSION;
    ep->GetName = ep_name;
    ep->GetCapability = capability;
    ep->Compile = compile;
    ep->ReleaseNodeComputeInfos = nnbridge_release_infos;
    ep->name = name;
    return ep;
}}

static OrtNodeComputeInfo* nnbridge_new_info(void) {{
    OrtNodeComputeInfo* info = calloc(1, sizeof(OrtNodeComputeInfo));
    if (info == NULL) return NULL;
    info->version = API_VERSION;
    info->CreateState = create_state;
    info->Compute = compute;
    info->ReleaseState = release_state;
    return info;
}}

static void nnbridge_free(void* memory) {{ free(memory); }}

#define FACTORY(provider) {{ \\
    .version = API_VERSION, .GetName = factory_name, .GetVendor = factory_vendor, .GetSupportedDevices = supported_devices, \\
    .CreateEp = create_ep, .ReleaseEp = release_ep, .GetVendorId = factory_vendor_id, .GetVersion = factory_version, \\
    .CreateAllocator = no_allocator, .ReleaseAllocator = release_no_allocator, .CreateDataTransfer = no_data_transfer, \\
    .IsStreamAware = is_stream_aware, .name = provider }}

static OrtEpFactory factories[] = {{{", ".join(f'FACTORY("{name}")' for name in NAMES)}}};

#define STRINGIFIED(x) #x
#define NUMBER(x) STRINGIFIED(x)
#define VERSION NUMBER(PY_MAJOR_VERSION) "." NUMBER(PY_MINOR_VERSION)

CFFI_DLLEXPORT void* CreateEpFactories(const char* registration, const OrtApiBase* base, const void* logger,
                                       OrtEpFactory** found, size_t max, size_t* number) {{
    (void)registration; (void)logger;
    char text[200];
    *number = 0;
    void* const* api = base->GetApi(API_VERSION);
    if (api == NULL) {{
        void* const* oldest = base->GetApi(1);
        snprintf(text, sizeof text, "libnnbridge_provider.so: expected ONNX Runtime 1.{API_VERSION} or later, found %s",
                 base->GetVersionString());
        return failed(oldest, 1, text);
    }}
    if (Py_IsInitialized() && strncmp(Py_GetVersion(), VERSION ".", strlen(VERSION ".")) != 0) {{
        snprintf(text, sizeof text, "libnnbridge_provider.so: expected Python " VERSION ", which built this library, found %.*s",
                 (int)strcspn(Py_GetVersion(), " "), Py_GetVersion());
        return failed(api, 1, text);
    }}
    if (nnbridge_start() != 0 || nnbridge_ready(api, base->GetVersionString()) != 1)
        return failed(api, 1, "libnnbridge_provider.so: nnbridge's Python cannot start; standard error has the reason");
    ort = api;
    for (size_t i = 0; i < sizeof factories / sizeof factories[0] && i < max; ++i) {{
        found[i] = &factories[i];
        *number = i + 1;
    }}
    return NULL;
}}

CFFI_DLLEXPORT void* ReleaseEpFactory(OrtEpFactory* factory) {{
    (void)factory;  /* static: sessions may outlive the registration */
    return NULL;
}}

/* What programs for Android call. The library registers itself with the ONNX Runtime of the process. */
CFFI_DLLEXPORT void* OrtSessionOptionsAppendExecutionProvider_Nnapi(void* options, uint32_t flags) {{
    const OrtApiBase* (*get_base)(void) = (const OrtApiBase* (*)(void))dlsym(RTLD_DEFAULT, "OrtGetApiBase");
    if (get_base == NULL) {{
        /* Without an ONNX Runtime there is no one to make a status. */
        fprintf(stderr, "libnnbridge_provider.so: expected a program that is linked with libonnxruntime.so, found none\\n");
        abort();
    }}
    void* const* api = get_base()->GetApi(API_VERSION);
    if (api == NULL)
        return failed(get_base()->GetApi(1), 1, "libnnbridge_provider.so: expected ONNX Runtime 1.{API_VERSION} or later");
    void* env = NULL;
    void* status = CALL(api, CREATE_ENV, void* (*)(int, const char*, void**))(2, "nnbridge", &env);
    if (status != NULL) return status;
    for (int attempt = 0; attempt < 2; ++attempt) {{
        const void* const* devices = NULL;
        size_t count = 0;
        status = CALL(api, GET_EP_DEVICES, void* (*)(const void*, const void* const**, size_t*))(env, &devices, &count);
        const void* own = NULL;
        for (size_t i = 0; status == NULL && i < count && own == NULL; ++i)
            if (strcmp(CALL(api, DEVICE_EP_NAME, const char* (*)(const void*))(devices[i]), factories[0].name) == 0)
                own = devices[i];
        if (status == NULL && own != NULL) {{
            char text[16];
            snprintf(text, sizeof text, "%u", flags);
            const char *key = "nnapi_flags", *value = text;
            typedef void* (*Append)(void*, void*, const void* const*, size_t, const char* const*, const char* const*, size_t);
            status = CALL(api, APPEND_V2, Append)(options, env, &own, 1, &key, &value, 1);
            break;
        }}
        if (status != NULL || attempt == 1) break;
        Dl_info self;
        if (!dladdr((void*)&OrtSessionOptionsAppendExecutionProvider_Nnapi, &self) || self.dli_fname == NULL)
            status = failed(api, 1, "libnnbridge_provider.so: the library's own path is not known");
        else {{
            char* path = realpath(self.dli_fname, NULL);
            status = CALL(api, REGISTER_LIBRARY, void* (*)(void*, const char*, const char*))(
                env, "nnbridge", path != NULL ? path : self.dli_fname);
            free(path);
        }}
        if (status != NULL) break;
    }}
    CALL(api, RELEASE_ENV, void (*)(void*))(env);
    return status;
}}
"""
