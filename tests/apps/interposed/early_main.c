/* Uses early.c. */
#include <stdio.h>
int resolved(void);
int main(void)
{
    printf("resolved %d\n", resolved());
    return 0;
}
