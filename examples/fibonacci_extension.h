/* The definition of the Fibonacci extension, as a vendor would ship it to clients. Its driver is fibonacci.py. */
#ifndef EXAMPLES_FIBONACCI_EXTENSION_H
#define EXAMPLES_FIBONACCI_EXTENSION_H

#include <stdint.h>

#define EXAMPLE_FIBONACCI_EXTENSION_NAME "com.example.fibonacci"

/* Operand types, numbered within the extension. */
enum {
    /* A 64-bit integer; a scalar. */
    EXAMPLE_INT64 = 0,
    /* 64-bit integers; a tensor with ExampleQuant64AsymmParams attached. */
    EXAMPLE_TENSOR_QUANT64_ASYMM = 1,
};

/* Operations, numbered within the extension. */
enum {
    /* Input 0: n, EXAMPLE_INT64 or TENSOR_FLOAT32 of one element. Output 0: the first n Fibonacci numbers, [n],
       EXAMPLE_TENSOR_QUANT64_ASYMM or TENSOR_FLOAT32. */
    EXAMPLE_FIBONACCI = 0,
};

/* Parameters of EXAMPLE_TENSOR_QUANT64_ASYMM: real = (value - zeroPoint) * scale. */
typedef struct {
    double scale;
    int64_t zeroPoint;
} ExampleQuant64AsymmParams;

#endif
