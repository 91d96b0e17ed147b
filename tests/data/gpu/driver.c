/* A driver without a GPU: the functions of libnvidia-ml.so.1 and libcuda.so.1 that tftune calls.

What the GPU is like stands in a file of lines KEY VALUE, named by FAKE_GPU and read at each call, so that a test can
change it while something runs. A process that initialises CUDA is listed by its number in the folder FAKE_GPU.d.

   cc -shared -fPIC driver.c -o libcuda.so.1      and again as libnvidia-ml.so.1
*/

#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
#define SLICE 1000 /* handles of slices are those of their card plus this times their number, from 1 */

static long long value(const char *key, long long otherwise) {
    const char *path = getenv("FAKE_GPU");
    FILE *file = path ? fopen(path, "r") : NULL;
    char name[64];
    long long number, result = otherwise;
    while (file && fscanf(file, "%63s %lld", name, &number) == 2)
        if (!strcmp(name, key)) result = number;
    if (file) fclose(file);
    return result;
}

static int gone(void) { return value("lost", 0) ? LOST : OK; }
static long card(void *handle) { return ((long)handle - 1) % SLICE; }
static long slice(void *handle) { return ((long)handle - 1) / SLICE; }
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

/* --- libnvidia-ml --- */

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

int nvmlInitWithFlags(unsigned flags) { (void)flags; return value("driver", 1) ? OK : 9; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake driver"; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { snprintf(out, n, "570.00"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { *out = 12080; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) { *out = value("cards", 1); return gone(); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    *out = (void *)(long)(index + 1);
    return index < value("cards", 1) ? gone() : INVALID;
}
int nvmlDeviceGetMigMode(void *handle, unsigned *mode, unsigned *pending) {
    *mode = *pending = value("slices", 0) && card(handle) == 0;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
    *out = (void *)((long)handle + SLICE * (index + 1));
    return card(handle) == 0 && index < value("slices", 0) ? OK : NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **out) {
    *out = (void *)(card(handle) + 1);
    return slice(handle) ? OK : INVALID;
}
int nvmlDeviceGetUUID(void *handle, char *out, unsigned n) {
    if (slice(handle)) snprintf(out, n, "MIG-%08ld-%ld", card(handle), slice(handle) - 1);
    else snprintf(out, n, "GPU-%08ld", card(handle));
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    char name[64];
    for (long c = 0; c < value("cards", 1); c++)
        for (long s = 0; s <= value("slices", 0); s++) {
            *out = (void *)(c + 1 + SLICE * s);
            nvmlDeviceGetUUID(*out, name, sizeof name);
            if (!strcmp(name, uuid)) return gone();
        }
    return NOT_FOUND;
}
int nvmlDeviceGetName(void *handle, char *out, unsigned n) {
    snprintf(out, n, slice(handle) ? "NVIDIA Fake 100 MIG 1g.10gb" : "NVIDIA Fake 100");
    return OK;
}
int nvmlDeviceGetMemoryInfo(void *handle, Memory *out) {
    out->total = (slice(handle) ? 10LL : 80LL) << 30;
    out->used = value("used_mib", 500) << 20;
    out->free = out->total - out->used;
    return gone();
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) { (void)h; *major = 9; *minor = 0; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *out) { (void)h; *out = 700000; return OK; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *out) { (void)h; *out = 1000 * value("watts", 300); return gone(); }
int nvmlDeviceGetMaxClockInfo(void *h, int kind, unsigned *out) { (void)h; (void)kind; *out = 1980; return OK; }
int nvmlDeviceGetClockInfo(void *h, int kind, unsigned *out) { (void)h; (void)kind; *out = value("mhz", 1900); return OK; }
int nvmlDeviceGetTemperature(void *h, int kind, unsigned *out) { (void)h; (void)kind; *out = value("celsius", 50); return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *out) {
    (void)h;
    *out = value("throttle", 0);
    return OK;
}
int nvmlDeviceGetComputeMode(void *h, unsigned *out) { (void)h; *out = value("mode", 0); return OK; }
int nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *out) {
    (void)h;
    if (!value("counts_energy", 1)) return NOT_SUPPORTED;
    *out = (unsigned long long)(1000 * value("watts", 300) * now());
    return gone();
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, Process *out) {
    char path[4096];
    unsigned n = 0;
    Process found[64];
    (void)handle;
    if (value("foreign", 0)) found[n++] = (Process){value("foreign", 0), 3LL << 30, 0, 0};
    snprintf(path, sizeof path, "%s.d", getenv("FAKE_GPU"));
    DIR *folder = opendir(path);
    for (struct dirent *each; folder && n < 64 && (each = readdir(folder));) {
        int pid = atoi(each->d_name);
        if (pid && !kill(pid, 0)) found[n++] = (Process){pid, value("process_mib", 700) << 20, 0, 0};
    }
    if (folder) closedir(folder);
    if (n && (!out || *count < n)) { *count = n; return TOO_SMALL; }
    *count = n;
    if (n) memcpy(out, found, n * sizeof *out);
    return gone();
}

/* --- libcuda --- */

static int context; /* whether the primary context of this process is there */

int cuGetErrorName(int code, const char **out) {
    *out = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
    return 0;
}
int cuInit(unsigned flags) {
    char path[4096];
    (void)flags;
    if (!value("driver", 1) || !value("cuda", 1)) return 100;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (!*visible || *visible == '-')) return 100; /* all are hidden */
    snprintf(path, sizeof path, "%s.d", getenv("FAKE_GPU"));
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s.d/%d", getenv("FAKE_GPU"), getpid());
    FILE *file = fopen(path, "w");
    if (file) fclose(file);
    return 0;
}
int cuDeviceGetCount(int *out) { *out = value("cards", 1); return 0; }
int cuDriverGetVersion(int *out) { *out = 12080; return 0; }
int cuDeviceGetName(char *out, int n, int device) { (void)device; snprintf(out, n, "NVIDIA Fake 100"); return 0; }
int cuDeviceTotalMem_v2(size_t *out, int device) { (void)device; *out = 80LL << 30; return 0; }
int cuDeviceGetPCIBusId(char *out, int n, int device) { snprintf(out, n, "0000:0%d:00.0", device); return 0; }
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    (void)device;
    *out = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 2 ? 1024 : 64; /* capability 9.0, threads of a block */
    return 0;
}
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = context || value("framework_has_context", 1);
    return 0;
}
int cuDevicePrimaryCtxRetain(void **out, int device) { (void)device; context = 1; *out = &context; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxPushCurrent_v2(void *c) { return c == &context ? 0 : 201; }
int cuCtxPopCurrent_v2(void **out) { *out = &context; return 0; }
int cuCtxSynchronize(void) { return value("lost", 0) ? 719 : 0; }
int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)image;
    return strstr(image, ".visible .entry spin") ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = module;
    return strcmp(name, "spin") ? 500 : 0;
}
int cuMemAlloc_v2(unsigned long long *out, size_t n) { /* the host's memory stands in */
    *out = (unsigned long long)malloc(n);
    return value("full", 0) ? 2 : 0;
}
int cuMemFree_v2(unsigned long long at) { free((void *)at); return 0; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t n, void *stream) {
    (void)stream;
    memcpy((void *)to, from, n);
    return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t n, void *stream) {
    (void)stream;
    memcpy(to, (void *)from, n);
    return 0;
}
int cuStreamCreate(void **out, unsigned flags) { *out = &context; return flags <= 1 ? 0 : 1; }
int cuStreamDestroy_v2(void *stream) { return stream == &context ? 0 : 1; }
int cuStreamSynchronize(void *stream) { return stream != &context || value("lost", 0) ? 719 : 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **arguments, void **extra) {
    unsigned long long *out = arguments[0];
    unsigned *rounds = arguments[1];
    struct timespec ms = {0, 1000000};
    (void)f; (void)stream; (void)extra; (void)shared;
    nanosleep(&ms, NULL);
    return gx * gy * gz * bx * by * bz == 1 && *out > 4096 && *rounds > 0 ? 0 : 1;
}
