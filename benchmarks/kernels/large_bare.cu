// large.cu for a linker without our handler, which defines the function that reports an access as another type.
#include "large.cu"

void be_throw_element_type(const char*, const void*, BE::DType) { __builtin_trap(); }
