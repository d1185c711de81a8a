/* Stands for the driver's libnvidia-ml.so.1: fixed answers, so that the real pynvml runs without a GPU.
 *
 * NVML_STUB names the machine: pascal (no counter, no fields), pascal186 (field 186 only), hopper (all),
 * grace (a GH200), mig, vgpu, host_vgpu, passthrough, bare (neither energy nor power), nothing (no GPU),
 * two, unlike, dead (the second of two does not answer), mixed (the first of two is split by MIG).
 * NVML_STUB_LOST_AFTER: calls of energy and power that succeed before the GPU is lost.
 * NVML_STUB_FIELD: "return,type" of every field; NVML_STUB_CAPABILITY: "major,minor"; NVML_STUB_INIT: what
 * nvmlInit returns; NVML_STUB_FALLS: the counter starts anew after that many calls; NVML_STUB_STATE.
 * Built with -DOLD it lacks the functions that drivers before 510 lack.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15, UNKNOWN = 999 };

typedef struct { int index; } Gpu;

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} PciInfo;

typedef union {
    double d;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
    int si;
    unsigned short us;
} Value;

typedef struct {
    uint32_t field, scope;
    int64_t timestamp, latency;
    uint32_t type, result;
    Value value;
} FieldValue;

static Gpu gpus[2] = {{0}, {1}};
static unsigned long long millijoules[2];
static int counter_calls, electric_calls, running;

static int is(const char *mode) {
    const char *set = getenv("NVML_STUB");
    return set && strcmp(set, mode) == 0;
}

static int pair(void) { return is("two") || is("unlike") || is("dead") || is("mixed"); }

static int pascal(void) { return is("pascal") || is("pascal186"); }

static int lost(void) {
    const char *after = getenv("NVML_STUB_LOST_AFTER");
    return after && ++electric_calls > atoi(after);
}

int nvmlInitWithFlags(unsigned flags) {
    const char *result = getenv("NVML_STUB_INIT");
    (void)flags;
    if (result) return atoi(result);
    millijoules[0] = 1000000;
    millijoules[1] = 2000000;
    counter_calls = electric_calls = 0;
    running++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    running--;
    return SUCCESS;
}

int stub_running(void) { return running; }

const char *nvmlErrorString(int result) { return result == UNKNOWN ? "Unknown Error" : "Other Error"; }

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    snprintf(text, size, "580.159.03");
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = is("nothing") ? 0 : pair() ? 2 : 1;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
    if (is("dead") && index == 1) return GPU_IS_LOST;
    *gpu = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetName(Gpu *gpu, char *text, unsigned size) {
    const char *name = "NVIDIA H200";
    if (pascal()) name = "Tesla P40";
    if (is("grace")) name = "NVIDIA GH200 480GB";
    if (is("unlike") && gpu->index == 0) name = "NVIDIA T4";
    snprintf(text, size, "%s", name);
    return SUCCESS;
}

int nvmlDeviceGetUUID(Gpu *gpu, char *text, unsigned size) {
    snprintf(text, size, gpu->index ? "GPU-aabb2222-0000" : "GPU-aabb1111-0000");
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
    memset(info, 0, sizeof *info);
    info->bus = gpu->index ? 0x5d : 0x18;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
    const char *set = getenv("NVML_STUB_CAPABILITY");
    (void)gpu;
    if (set && strcmp(set, "none") == 0) return NOT_SUPPORTED;
    if (set) return sscanf(set, "%d,%d", major, minor) == 2 ? SUCCESS : UNKNOWN;
    *major = pascal() ? 6 : 9;
    *minor = pascal() ? 1 : 0;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *now, unsigned *pending) {
    if (pascal()) return NOT_SUPPORTED;
    *now = *pending = is("mig") || (is("mixed") && gpu->index == 0);
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(Gpu *gpu, unsigned long long *value) {
    const char *falls = getenv("NVML_STUB_FALLS");
    if (lost()) return GPU_IS_LOST;
    if (pascal() || is("bare")) return NOT_SUPPORTED;
    if (falls && ++counter_calls == atoi(falls)) millijoules[gpu->index] = 0;
    *value = millijoules[gpu->index] += 14000;
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *value) {
    (void)gpu;
    if (lost()) return GPU_IS_LOST;
    if (is("bare")) return NOT_SUPPORTED;
    *value = pascal() ? 52345 : 131072;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(Gpu *gpu, unsigned sensor, unsigned *value) {
    (void)gpu;
    *value = sensor == 0 ? 41 : 99;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned clock, unsigned *value) {
    (void)gpu;
    *value = clock == 1 ? 1980 : 1;
    return SUCCESS;
}

int nvmlDeviceGetPerformanceState(Gpu *gpu, unsigned *state) {
    const char *set = getenv("NVML_STUB_STATE");
    (void)gpu;
    *state = set ? atoi(set) : 2;
    return SUCCESS;
}

int nvmlDeviceGetEnforcedPowerLimit(Gpu *gpu, unsigned *value) {
    (void)gpu;
    if (pascal()) return UNKNOWN;
    *value = 700000;
    return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *bits) {
    (void)gpu;
    *bits = 1;
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
} Process;

static int processes(unsigned *count, Process *list, unsigned there) {
    if (*count < there) {
        *count = there;
        return INSUFFICIENT_SIZE;
    }
    for (unsigned each = 0; each < there; each++) list[each].pid = 100 + each;
    *count = there;
    return SUCCESS;
}

#ifdef OLD

int nvmlDeviceGetComputeRunningProcesses_v2(Gpu *gpu, unsigned *count, Process *list) {
    (void)gpu;
    return processes(count, list, 1);
}

#else

int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *list) {
    return processes(count, list, gpu->index ? 0 : 3);
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *bits) {
    (void)gpu;
    *bits = 4 | 64;
    return SUCCESS;
}

int nvmlDeviceGetVirtualizationMode(Gpu *gpu, unsigned *mode) {
    (void)gpu;
    *mode = is("vgpu") ? 2 : is("host_vgpu") ? 3 : is("passthrough") ? 1 : 0;
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values) {
    (void)gpu;
    for (int each = 0; each < count; each++) {
        FieldValue *one = &values[each];
        const char *set = getenv("NVML_STUB_FIELD");
        int there = one->field == 186 && (one->scope == 0 || (one->scope == 1 && is("grace")));
        memset(&one->value, 0xa5, sizeof one->value); /* what a type does not cover must not be read */
        one->type = 1;
        one->result = lost() ? GPU_IS_LOST : there && !is("pascal") && !is("bare") ? SUCCESS : NOT_SUPPORTED;
        if (set) sscanf(set, "%u,%u", &one->result, &one->type);
        switch (one->type) {
        case 0: one->value.d = 123456.5; break;
        case 1: one->value.ui = one->scope ? 410000 : 123456; break;
        case 2: one->value.ul = 123457; break;
        case 3: one->value.ull = 123458; break;
        case 4: one->value.sll = -5; break;
        case 5: one->value.si = 123459; break;
        case 6: one->value.us = 60000; break;
        }
    }
    return SUCCESS;
}

#endif
