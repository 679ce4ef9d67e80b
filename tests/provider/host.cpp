// A program without Python on ONNX Runtime's C interface: runs a model of one float input and one float output.
//
// host LIBRARY MODEL INPUT OUTPUT DIMS [ROUNDS [KEY=VALUE]...]    registers the library, which adds the provider with options
// host - MODEL INPUT OUTPUT DIMS [ROUNDS [FLAGS]]                 calls OrtSessionOptionsAppendExecutionProvider_Nnapi
//
// Reads the input's numbers as raw bytes from standard input, writes the output's to standard output. ONNX Runtime's tables of
// functions are declared by position: its headers are not in the Python wheel.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

struct OrtApiBase {
    void* const* (*GetApi)(uint32_t);
    const char* (*GetVersionString)();
};
extern "C" const OrtApiBase* OrtGetApiBase();
extern "C" void* OrtSessionOptionsAppendExecutionProvider_Nnapi(void* options, uint32_t flags);

static void* const* api;

template <int position, typename... Arguments>
static void* status_of(Arguments... arguments) {
    return reinterpret_cast<void* (*)(Arguments...)>(api[position])(arguments...);
}

template <int position, typename Argument>
static void release(Argument argument) {
    reinterpret_cast<void (*)(Argument)>(api[position])(argument);
}

static void require(void* status) {
    if (status == nullptr) return;
    fprintf(stderr, "%s\n", reinterpret_cast<const char* (*)(void*)>(api[2])(status));
    exit(3);
}

static void add_provider(void* env, void* options, char** settings, int count) {
    const void* const* devices = nullptr;
    size_t number = 0;
    require(status_of<303>(env, &devices, &number));
    const void* own = nullptr;
    for (size_t i = 0; i < number; ++i) {
        const char* name = reinterpret_cast<const char* (*)(const void*)>(api[312])(devices[i]);
        if (strcmp(name, "NnapiExecutionProvider") == 0) own = devices[i];
    }
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) {
        std::string text = settings[i];
        texts.push_back(text.substr(0, text.find('=')));
        texts.push_back(text.substr(text.find('=') + 1));
    }
    std::vector<const char*> keys, values;
    for (int i = 0; i < count; ++i) {
        keys.push_back(texts[2 * i].c_str());
        values.push_back(texts[2 * i + 1].c_str());
    }
    require(status_of<304>(options, env, (const void* const*)&own, (size_t)1, (const char* const*)keys.data(),
                           (const char* const*)values.data(), (size_t)count));
}

static void run(void* session, const char* input, const char* output, std::vector<float> numbers, std::vector<int64_t> dims,
                std::vector<float>* found) {
    void *memory = nullptr, *value = nullptr, *result = nullptr;
    require(status_of<69>(0, 0, &memory));
    require(status_of<49>((const void*)memory, (void*)numbers.data(), numbers.size() * sizeof(float), (const int64_t*)dims.data(),
                          dims.size(), 1, &value));
    require(status_of<9>(session, (const void*)nullptr, &input, (const void* const*)&value, (size_t)1, &output, (size_t)1,
                         &result));
    size_t bytes = 0;
    void* data = nullptr;
    require(status_of<318>((const void*)result, &bytes));
    require(status_of<51>(result, &data));
    found->assign((float*)data, (float*)data + bytes / sizeof(float));
    release<96>(result);
    release<96>(value);
    release<94>(memory);
}

int main(int count, char** arguments) {
    if (count < 6) return 2;
    const char *library = arguments[1], *model = arguments[2], *input = arguments[3], *output = arguments[4];
    std::vector<int64_t> dims;
    size_t size = 1;
    for (char* part = strtok(arguments[5], ","); part != nullptr; part = strtok(nullptr, ",")) {
        dims.push_back(atoll(part));
        size *= dims.back();
    }
    std::vector<float> numbers(size);
    if (fread(numbers.data(), sizeof(float), size, stdin) != size) return 2;
    int rounds = count > 6 ? atoi(arguments[6]) : 1;
    api = OrtGetApiBase()->GetApi(23);
    if (api == nullptr) return 4;
    void* env = nullptr;
    require(status_of<3>(3, "host", &env));
    if (strcmp(library, "-") != 0) require(status_of<301>(env, "nnbridge", library));
    std::vector<float> answers[2];
    for (int round = 0; round < rounds; ++round) {
        void *options = nullptr, *session = nullptr;
        require(status_of<10>(&options));
        if (strcmp(library, "-") == 0)
            require(OrtSessionOptionsAppendExecutionProvider_Nnapi(options, count > 7 ? atoi(arguments[7]) : 0));
        else
            add_provider(env, options, arguments + 7, count > 7 ? count - 7 : 0);
        require(status_of<7>(env, model, (const void*)options, &session));
        std::thread other(run, session, input, output, numbers, dims, &answers[1]);
        run(session, input, output, numbers, dims, &answers[0]);
        other.join();
        if (answers[0] != answers[1]) return 5;
        release<95>(session);
        release<100>(options);
    }
    if (strcmp(library, "-") != 0) require(status_of<302>(env, "nnbridge"));
    release<92>(env);
    fwrite(answers[0].data(), sizeof(float), answers[0].size(), stdout);
    return 0;
}
