// All that an emulated library includes, so that it is compiled once for all of them.
#pragma once
#include "emulator.hpp"
#include "kernelwright.cuh"
#include "kernelwright_mma.cuh"
