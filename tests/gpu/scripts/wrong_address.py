"""Write to an address that the program may not use: in a kernel, or on the processor.

The kernel is text that the driver compiles, so no compiler is needed.
"""

import ctypes
import sys

KERNEL = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry wrong_address()
{
    .reg .b64 %address;
    .reg .b32 %value;
    mov.u64 %address, 4096;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""


def on_gpu() -> None:
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        code = getattr(driver, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            driver.cuGetErrorString(code, ctypes.byref(text))
            sys.exit(f"{name} ended with {code}: {(text.value or b'').decode()}")

    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuModuleLoadData", ctypes.byref(module), KERNEL)
    call("cuModuleGetFunction", ctypes.byref(function), module, b"wrong_address")
    call("cuLaunchKernel", function, *(ctypes.c_uint(1) for _unused in range(6)), ctypes.c_uint(0), None, None, None)
    call("cuCtxSynchronize")


if sys.argv[1] == "gpu":
    on_gpu()
else:
    ctypes.memset(4096, 1, 4)
