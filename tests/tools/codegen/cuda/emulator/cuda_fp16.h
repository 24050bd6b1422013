#pragma once  // half types come from emulator.hpp
