/* The driver's library of a driver that is too old: it knows its version, one device, and nothing else. */

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *version) { *version = 11040; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return 0; }
int cuGetErrorString(int error, const char **text) { (void)error; *text = "an error of the old driver"; return 0; }
int cuGetErrorName(int error, const char **text) { return cuGetErrorString(error, text); }
