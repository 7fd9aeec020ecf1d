/* The program `infcgi`: picks the subcommand. */
#include <stdio.h>

int main(void)
{
    puts("infcgi");
    return 0;
}
