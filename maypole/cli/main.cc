// SPDX-License-Identifier: Apache-2.0
#include "maypole/cli/program.h"

int main(int argc, char** argv) { return maypole::cli::run_program(argc, argv); }
