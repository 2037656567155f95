/* NVIDIA's management library for machines without a GPU. What it reports is in a text file, which may change while
   programs run: lines of `key value`, or `index.key value` for one GPU, which wins; of the same key the last one. A GPU
   supports what has a value.

   Names, numbers and structures: NVIDIA's NVML API Reference Guide. localcloud/README.md describes the file. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STATE "/etc/localcloud/gpus"
#define ALL (-1)

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
typedef void *Device;

/* Find the value of a key. `gpu` is an index, or ALL. */
static int find(int gpu, const char *key, char *value, size_t size) {
    const char *path = getenv("LOCALCLOUD_GPUS");
    FILE *file = fopen(path ? path : STATE, "re");
    char line[4096], own[128];
    int found = 0;
    if (!file) return 0;
    snprintf(own, sizeof own, "%d.%s", gpu, key);
    while (fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ');
        if (!rest) continue;
        *rest++ = 0;
        rest[strcspn(rest, "\n")] = 0;
        int rank = gpu != ALL && !strcmp(line, own) ? 2 : !strcmp(line, key);
        if (rank && rank >= found) {
            snprintf(value, size, "%s", rest);
            found = rank;
        }
    }
    fclose(file);
    return found;
}

static int number(int gpu, const char *key, long long *value) {
    char text[64];
    if (!find(gpu, key, text, sizeof text)) return NOT_SUPPORTED;
    *value = strtoll(text, NULL, 0);
    return SUCCESS;
}

static int is_on(int gpu, const char *key) {
    long long value = 0;
    return !number(gpu, key, &value) && value;
}

/* What each call does first: wait as long as the file demands, for ever if it hangs. */
static void answer_late(int gpu) {
    long long milliseconds = 0;
    if (!number(gpu, "delay_ms", &milliseconds)) {
        struct timespec delay = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        nanosleep(&delay, NULL);
    }
    while (is_on(gpu, "hang")) usleep(50000);
}

static int enter(Device device, int *gpu) {
    *gpu = (int)(intptr_t)device - 1;
    if (*gpu < 0) return INVALID_ARGUMENT;
    answer_late(*gpu);
    return is_on(*gpu, "lost") ? GPU_IS_LOST : SUCCESS;
}

static int copy(int gpu, const char *key, char *value, unsigned size) {
    char text[256];
    if (!find(gpu, key, text, sizeof text)) return NOT_SUPPORTED;
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(value, text);
    return SUCCESS;
}

#define ENTER(device) int gpu, code = enter(device, &gpu); if (code) return code
#define TEXT(name, key) int name(Device device, char *value, unsigned size) { \
    ENTER(device); return copy(gpu, key, value, size); }
#define NUMBER(name, type, key) int name(Device device, type *value) { \
    ENTER(device); long long answer; if ((code = number(gpu, key, &answer))) return code; *value = answer; return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) {
    long long count;
    (void)flags;
    answer_late(ALL);
    return number(ALL, "count", &count) ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *value, unsigned size) { return copy(ALL, "driver", value, size); }
int nvmlSystemGetNVMLVersion(char *value, unsigned size) { return copy(ALL, "driver", value, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *value) {
    long long answer;
    int code = number(ALL, "cuda", &answer);
    if (!code) *value = answer;
    return code;
}
int nvmlSystemGetCudaDriverVersion(int *value) { return nvmlSystemGetCudaDriverVersion_v2(value); }

int nvmlDeviceGetCount_v2(unsigned *value) {
    long long answer;
    answer_late(ALL);
    if (number(ALL, "count", &answer)) return UNINITIALIZED;
    *value = answer;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    long long count;
    if (number(ALL, "count", &count) || index >= count) return INVALID_ARGUMENT;
    *device = (Device)(intptr_t)(index + 1);
    int gpu;
    return enter(*device, &gpu);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    long long count;
    char own[256];
    if (number(ALL, "count", &count)) return UNINITIALIZED;
    for (int gpu = 0; gpu < count; gpu++)
        if (find(gpu, "uuid", own, sizeof own) && !strcmp(own, uuid)) return nvmlDeviceGetHandleByIndex_v2(gpu, device);
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(Device device, unsigned *index) { ENTER(device); *index = gpu; return SUCCESS; }
int nvmlDeviceGetMinorNumber(Device device, unsigned *minor) { ENTER(device); *minor = gpu; return SUCCESS; }

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetSerial, "serial")

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } PciInfo;
int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    ENTER(device);
    memset(info, 0, sizeof *info);
    if ((code = copy(gpu, "bus_id", info->bus_id, sizeof info->bus_id))) return code;
    sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->legacy, sizeof info->legacy, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus & 0xff,
             info->device & 0xff);
    return SUCCESS;
}

/* memory_total, memory_used and memory_reserved are bytes. */
static int memory(int gpu, long long *total, long long *used, long long *reserved) {
    *reserved = *used = 0;
    number(gpu, "memory_reserved", reserved);
    number(gpu, "memory_used", used);
    return number(gpu, "memory_total", total);
}
typedef struct { unsigned long long total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(Device device, Memory *info) {
    ENTER(device);
    long long total, used, reserved;
    if ((code = memory(gpu, &total, &used, &reserved))) return code;
    *info = (Memory){total, total - used - reserved, used + reserved};
    return SUCCESS;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *info) {
    ENTER(device);
    long long total, used, reserved;
    if (info->version != (sizeof *info | 2u << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    if ((code = memory(gpu, &total, &used, &reserved))) return code;
    *info = (MemoryV2){info->version, total, reserved, total - used - reserved, used};
    return SUCCESS;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    ENTER(device);
    long long busy;
    if ((code = number(gpu, "busy", &busy))) return code;
    *rates = (Utilization){busy, busy};
    return SUCCESS;
}
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned *degrees) {
    ENTER(device);
    long long answer;
    if (sensor) return INVALID_ARGUMENT;
    if ((code = number(gpu, "temperature", &answer))) return code;
    *degrees = answer;
    return SUCCESS;
}
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "milliwatts")
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, "persistence")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "throttle_reasons")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "throttle_reasons")

int nvmlDeviceGetTotalEccErrors(Device device, int kind, int counter, unsigned long long *errors) {
    ENTER(device);
    long long answer;
    (void)counter;
    if ((code = number(gpu, kind ? "ecc_uncorrected" : "ecc_corrected", &answer))) return code;
    *errors = answer;
    return SUCCESS;
}
/* remapped_rows: correctable, uncorrectable, pending, failed */
int nvmlDeviceGetRemappedRows(Device device, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed) {
    ENTER(device);
    char text[256];
    if (!find(gpu, "remapped_rows", text, sizeof text)) return NOT_SUPPORTED;
    int count = sscanf(text, "%u %u %u %u", correctable, uncorrectable, pending, failed);
    return count == 4 ? SUCCESS : NOT_SUPPORTED;
}
int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    ENTER(device);
    long long answer;
    if ((code = number(gpu, "mig", &answer))) return code;
    *current = *pending = answer;
    return SUCCESS;
}
/* nvlinks: one character for each link, 1 if it is active, otherwise 0 */
int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    ENTER(device);
    char text[64];
    if (!find(gpu, "nvlinks", text, sizeof text)) return NOT_SUPPORTED;
    if (link >= strlen(text)) return INVALID_ARGUMENT;
    *active = text[link] == '1';
    return SUCCESS;
}

/* processes: `pid:bytes` for each, with spaces between them */
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } ProcessInfo;
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *processes) {
    ENTER(device);
    char text[4096] = "", *rest = text;
    unsigned room = *count, pid, number_of = 0;
    unsigned long long bytes;
    int length;
    find(gpu, "processes", text, sizeof text);
    for (; sscanf(rest, "%u:%llu%n", &pid, &bytes, &length) == 2; rest += length, number_of++)
        if (processes && number_of < room) processes[number_of] = (ProcessInfo){pid, bytes, -1u, -1u};
    *count = number_of;
    return number_of > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned *count, ProcessInfo *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, processes);
}
