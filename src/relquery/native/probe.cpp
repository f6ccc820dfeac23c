/// Prints the target of the machine that compiles, for CMakeLists.txt.
#include <cstdio>

#include "cpu.hpp"

int main() { std::puts(relquery::TARGET_NAMES[int(relquery::best_target())]); }
