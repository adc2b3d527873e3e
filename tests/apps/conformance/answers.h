/* What the programs of this folder say of a driver beside "passed". A line "NAME VALUE UNIT" is an answer that nothing documents
 * and no expectation judges; scripts/gpu-acceptance.sh collects these lines as figures. Include after driver.h. */
#ifndef VCUDA_TESTS_ANSWERS_H
#define VCUDA_TESTS_ANSWERS_H

static inline void tell(const char *name, unsigned long long value, const char *unit)
{
    printf("%s %llu %s\n", name, value, unit);
}
static inline CUresult told(const char *name, CUresult code)
{
    tell(name, (unsigned long long)code, "CUresult");
    return code;
}
#endif
